"""Read only: the status of tables, and why something is as it is."""
