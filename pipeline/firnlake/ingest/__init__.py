"""Records come in: landed from files, adopted with a table, or back from quarantine."""
