"""What wakes the DAG of a table: an asset whose trigger looks whether a lane is due."""
