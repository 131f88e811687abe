"""Lane `erase`: requests to erase keys, searches, and certificates (C30)."""
