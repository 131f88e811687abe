"""Lanes `mask` and `lighten`: records are hidden where they are (C27, C28)."""
