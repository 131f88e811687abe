"""The wake-up of a table's DAG: an asset whose trigger checks for lanes that are due."""
