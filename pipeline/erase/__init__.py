"""Erase: requests that no file holds a key any more, what was done about them, and the proof (C30)."""
