"""Lane `convert`: turns equality deletes into position deletes of the same records (C27)."""
