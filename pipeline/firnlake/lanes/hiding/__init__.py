"""Lanes `hide` and `convert`, which hide records by position deletes and rewrite no data file (C27, C28)."""
