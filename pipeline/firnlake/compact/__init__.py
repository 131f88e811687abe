"""Compact: carry plans out in tasks of an engine; the rules of what stays are in ``keep_or_drop``."""
