"""Quarantine: records that can't be compacted, kept beside the table with the reason (C5)."""

from pipeline.quarantine.listing import Batch, Record, batches, export, records

__all__ = ["Batch", "Record", "batches", "export", "records"]
