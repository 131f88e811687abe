"""The columns that a cleaning works on, whatever the table calls them; they never leave the compact room."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.plan import Plan
from pipeline.stage.stage import BURIED

KEY = "firn_key"
OFFSET = "firn_offset"
TOMBSTONE = "firn_tombstone"
LEVEL = "firn_level"
WAS_BURIED = "firn_was_buried"
COLUMNS = (KEY, OFFSET, TOMBSTONE, LEVEL, WAS_BURIED)

BROADCAST_RECORDS = 20_000_000
"""Up to so many input records a verdict per offset is broadcast (16 bytes each); beyond, Spark's join decides."""

HORIZON = "delete_horizon"
STATE = ("level", HORIZON)
"""Columns that Firn writes; all others are the record itself and stay as they are (C1)."""


def with_working_columns(inputs: DataFrame) -> DataFrame:
    """``inputs`` and the working columns: key, offset, whether the record is a tombstone, its level.

    ``WAS_BURIED`` marks records that an earlier cleaning took out of the table, from ``<table>__tombstones``.
    """
    level = F.coalesce(F.col("level"), F.lit(0))
    return inputs.withColumns(
        {
            KEY: F.col("key"),
            OFFSET: F.col("offset"),
            TOMBSTONE: F.col("value").isNull(),
            LEVEL: level,
            WAS_BURIED: level == BURIED,
        }
    )


def small(verdicts: DataFrame, plan: Plan) -> DataFrame:
    """``verdicts``, at most one per input record, so that joining them moves no values where they are few."""
    return F.broadcast(verdicts) if plan.records <= BROADCAST_RECORDS else verdicts


def record_columns(inputs: DataFrame) -> list[str]:
    """The columns of the record itself."""
    return [name for name in inputs.columns if name not in (*COLUMNS, *STATE)]
