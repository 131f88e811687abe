"""The DAG of a table and its tasks."""
