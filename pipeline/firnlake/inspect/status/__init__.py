"""Status of a table as one document: contents, dirty ratio, the work that is due, and the work Firn has done."""
