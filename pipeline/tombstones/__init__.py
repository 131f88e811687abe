"""Tombstones that were removed, kept beside their table: they come back when an older record turns up late (C9)."""
