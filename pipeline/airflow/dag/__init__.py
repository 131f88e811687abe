"""The DAG of a table and its tasks, in the order of a run, and `firn_maintain`, which looks after all tables."""
