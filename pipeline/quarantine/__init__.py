"""Quarantine: records that can't be compacted, kept beside the table with the reason (C5)."""
