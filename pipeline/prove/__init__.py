"""Prove: search a table for keys that were erased, say what is in the way, and certify what is done (C30)."""
