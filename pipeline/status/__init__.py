"""Status: what a table holds, how dirty it is, and what is due, for people and programs."""

from pipeline.status.status import LevelStatus, PartitionStatus, Status, status_of

__all__ = ["LevelStatus", "PartitionStatus", "Status", "status_of"]
