"""Sense: what is due in a table, and why, from metadata alone (no JVM)."""

from pipeline.sense.bounds import Bounds
from pipeline.sense.forecast import due_at
from pipeline.sense.lanes import Due, Lane, due
from pipeline.sense.retention import Retention, retention
from pipeline.sense.scope import EVERYTHING, Scope
from pipeline.sense.state import Held, PartitionState, sense
from pipeline.sense.table import Sensed, read_once, sense_table
from pipeline.sense.undecided import transactions_of

__all__ = [
    "EVERYTHING",
    "Bounds",
    "Due",
    "Held",
    "Lane",
    "PartitionState",
    "Retention",
    "Scope",
    "Sensed",
    "due",
    "due_at",
    "read_once",
    "retention",
    "sense",
    "sense_table",
    "transactions_of",
]
