"""The DAG of a table and its tasks, in the order of a run, and `firn_maintain`, which maintains all tables."""
