"""Quarantine: list, export and clear records that have no key, kept on a branch of their table (C5)."""

from pipeline.quarantine.clear import clear
from pipeline.quarantine.listing import Batch, Record, Selection, as_of_now, batches, export, records

__all__ = ["Batch", "Record", "Selection", "as_of_now", "batches", "clear", "export", "records"]
