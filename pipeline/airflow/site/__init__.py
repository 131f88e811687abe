"""Firn's pages in Airflow's UI: permissions, addresses and links."""
