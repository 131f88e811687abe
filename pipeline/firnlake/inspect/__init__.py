"""Shows and explains the status of tables, without changing them."""
