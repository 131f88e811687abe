"""Firn's pages in Airflow's UI: who may see them, where they are, and what links to them."""
