"""Airflow: the DAGs of tables, what starts them, and the pages in its UI. Everything else works without Airflow."""
