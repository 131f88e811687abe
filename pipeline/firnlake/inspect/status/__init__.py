"""Status of a table as one document: contents, dirty ratio, due work, and the work that Firn has done."""
