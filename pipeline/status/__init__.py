"""Status: what a table holds, how dirty it is, and what is due, for people and programs."""

from pipeline.status.checkpoint import checkpoint_text, write_checkpoint
from pipeline.status.feasible import doubts
from pipeline.status.status import LevelStatus, PartitionStatus, Status, status_of

__all__ = ["LevelStatus", "PartitionStatus", "Status", "checkpoint_text", "doubts", "status_of", "write_checkpoint"]
