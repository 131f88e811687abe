"""How records enter a table: landed from files, adopted with an existing table, or returned from quarantine."""
