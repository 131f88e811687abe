"""Firn's pages in Airflow's UI."""
