"""Masks: the memory of lane `mask`, so that the next mask compares only what has landed since (C28)."""
