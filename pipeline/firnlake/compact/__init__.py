"""Compact: carry out plans in tasks of an engine. The rules that decide which records stay are in ``keep_or_drop``."""
