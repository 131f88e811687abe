"""Lanes `hide` and `convert`: records are hidden where they are (C27, C28)."""
