"""Status: what a table holds, how dirty it is, and what is due, for people, programs and pages."""

from pipeline.status.checkpoint import checkpoint_text, write_checkpoint
from pipeline.status.feasible import doubts
from pipeline.status.snapshot import write_snapshot
from pipeline.status.status import Condition, LevelStatus, PartitionStatus, Status, status_of

__all__ = [
    "Condition",
    "LevelStatus",
    "PartitionStatus",
    "Status",
    "checkpoint_text",
    "doubts",
    "status_of",
    "write_checkpoint",
    "write_snapshot",
]
