"""Quarantine: list, export and clear records that have no key, kept on a branch of their table (C5)."""

from pipeline.quarantine.clear import clear
from pipeline.quarantine.listing import Batch, Record, Selection, batches, export, records

__all__ = ["Batch", "Record", "Selection", "batches", "clear", "export", "records"]
