"""Sense: what is due in a table, and why, from metadata alone (no JVM)."""

from pipeline.sense.bounds import ScopeBounds
from pipeline.sense.forecast import due_at, due_later
from pipeline.sense.lanes import Due, Lane, due
from pipeline.sense.retention import Retention, retention
from pipeline.sense.scope import EVERYTHING, Scope
from pipeline.sense.state import HeldBack, PartitionState, sense
from pipeline.sense.table import Sensed, read_once, sense_table
from pipeline.sense.undecided import transactions_of

__all__ = [
    "EVERYTHING",
    "Due",
    "HeldBack",
    "Lane",
    "PartitionState",
    "Retention",
    "Scope",
    "ScopeBounds",
    "Sensed",
    "due",
    "due_at",
    "due_later",
    "read_once",
    "retention",
    "sense",
    "sense_table",
    "transactions_of",
]
