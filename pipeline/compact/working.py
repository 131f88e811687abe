"""The columns that a cleaning works on, whatever the table calls them; they never leave the compact room."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.lake.columns import Columns
from pipeline.lake.condition import quoted
from pipeline.stage.stage import BURIED

WORKING = "_firn_"
"""What the names of all columns begin with that only the compact room knows; a table has none like it."""

KEY = "_firn_key"
OFFSET = "_firn_offset"
TOMBSTONE = "_firn_tombstone"
LEVEL = "_firn_level"
WAS_BURIED = "_firn_was_buried"
COLUMNS = (KEY, OFFSET, TOMBSTONE, LEVEL, WAS_BURIED)

PLAN = "_firn_plan"
"""The number of the record's plan in its job."""
POSITION = "_firn_position"
"""A number for every record of the job: in the order of offsets within a plan, others for other plans."""
REPEATABLE_FROM = "_firn_repeatable_from"
"""The lowest offset that may occur twice in the record's plan; NULL where none may."""

HORIZON = "_firn_horizon"
"""The table's own column of delete horizons, under this name while it is worked on."""


def with_working_columns(inputs: DataFrame, columns: Columns) -> DataFrame:
    """``inputs`` and the working columns: key, offset, whether the record is a tombstone, its level, its horizon.

    ``WAS_BURIED`` marks records that an earlier cleaning took out of the table, from ``<table>__tombstones``.
    """
    level = F.coalesce(column(columns.level), F.lit(0))
    return (
        inputs.withColumns(
            {
                KEY: _key(columns),
                OFFSET: column(columns.offset).cast("bigint"),
                TOMBSTONE: F.coalesce(F.expr(columns.tombstone or "FALSE"), F.lit(False)),
                LEVEL: level,
                WAS_BURIED: level == BURIED,
            }
        )
        .drop(columns.level)
        .withColumnRenamed(columns.delete_horizon, HORIZON)
    )


def as_stored(records: DataFrame, columns: Columns, level: Column) -> DataFrame:
    """``records`` in the table's own columns again, at ``level``."""
    stored = [column(name) for name in record_columns(records)]
    return records.select(*stored, F.col(HORIZON).alias(columns.delete_horizon), level.cast("int").alias(columns.level))


def column(name: str) -> Column:
    """The column called ``name``, whatever characters are in it."""
    return F.col(quoted(name))


def record_columns(inputs: DataFrame) -> list[str]:
    """The columns of the record itself, which stay as they are (C1): all but those that Firn writes."""
    return [name for name in inputs.columns if name != HORIZON and not name.startswith(WORKING)]


def _key(columns: Columns) -> Column:
    """The key, compared exactly (C6); a composite one with a NULL in any of its columns is none (C5)."""
    parts = [column(name) for name in columns.key]
    if len(parts) == 1:
        return parts[0]
    complete = parts[0].isNotNull()
    for part in parts[1:]:
        complete &= part.isNotNull()
    return F.when(complete, F.struct(*(part.alias(f"part{number}") for number, part in enumerate(parts))))
