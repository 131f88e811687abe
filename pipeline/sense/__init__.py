"""Sense: what is due in a table, and why, from metadata alone (no JVM)."""

from pipeline.sense.forecast import due_at
from pipeline.sense.lanes import Due, Lane, due
from pipeline.sense.retention import Retention, retention
from pipeline.sense.state import Held, PartitionState, sense
from pipeline.sense.table import sense_table
from pipeline.sense.undecided import transactions_of

__all__ = [
    "Due",
    "Held",
    "Lane",
    "PartitionState",
    "Retention",
    "due",
    "due_at",
    "retention",
    "sense",
    "sense_table",
    "transactions_of",
]
