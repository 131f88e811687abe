"""The figures of a job's plans beside its records, as columns.

As literals they would be compiled into the code that Spark generates, anew for every plan.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.compact.repeats import repeatable_from
from pipeline.compact.working import OFFSET, PLAN, POSITION, REPEATABLE_FROM, WAS_BURIED, column
from pipeline.lake.columns import Columns
from pipeline.plan import Plan
from pipeline.plan.plan import span

CLEAN_BELOW = "_firn_clean_below"
LOG_END = "_firn_log_end"
NOW = "_firn_now"
STAMP = "_firn_stamp"
"""The delete horizon of a tombstone that this cleaning is the first to find clean."""
FIGURES = (PLAN, POSITION, REPEATABLE_FROM, CLEAN_BELOW, LOG_END, NOW, STAMP)

_SHIFT, _BURIED_GAP, _TOPIC, _PARTITION = "_firn_shift", "_firn_buried_gap", "_firn_topic", "_firn_of_partition"
_NUMBERS = (_PARTITION, PLAN, _SHIFT, _BURIED_GAP, REPEATABLE_FROM, CLEAN_BELOW, LOG_END, NOW, STAMP)
_SCHEMA = pa.schema([(_TOPIC, pa.string()), *((name, pa.int64()) for name in _NUMBERS)])


@dataclass(frozen=True)
class Places:
    """Where the records of one plan lie among the positions of its job, from ``start`` up to ``end``, in words' bounds.

    A record is at its offset + ``shift``; a tombstone that was removed earlier ``buried_gap`` after that.
    """

    start: int
    shift: int
    buried_gap: int
    end: int

    @classmethod
    def of(cls, plans: Sequence[Plan]) -> Iterator["Places"]:
        """One after the other without a gap, so that the words of small plans stay few."""
        start = 0
        for plan in plans:
            lowest, highest = span((*plan.inputs, *plan.buried)) or (0, 0)
            first = lowest & ~63
            width = (highest | 63) + 1 - first
            gap = width if plan.buried else 0
            yield cls(start, start - first, gap, start + width + gap)
            start += width + gap


def with_figures(records: DataFrame, columns: Columns, plans: Sequence[Plan]) -> DataFrame:
    """``records``, which have the working columns, and the FIGURES of the plan of each."""
    rows = [
        (
            plan.topic,
            plan.partition,
            number,
            places.shift,
            places.buried_gap,
            repeatable_from(plan),
            plan.clean_below,
            plan.log_end_offset,
            plan.now_ms,
            plan.now_ms + plan.delete_retention_ms,
        )
        for number, (plan, places) in enumerate(zip(plans, Places.of(plans), strict=True))
    ]
    # Through Arrow: rows of Python objects would start Python workers.
    columns_of = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), _SCHEMA, strict=True)]
    figures = F.broadcast(records.sparkSession.createDataFrame(pa.Table.from_arrays(columns_of, schema=_SCHEMA)))
    if len(plans) == 1:
        beside = records.crossJoin(figures)
    else:
        # Several plans are of different topic partitions, so the table has columns that tell them apart.
        named = ((columns.topic, _TOPIC), (columns.partition, _PARTITION))
        beside = records.join(figures, [column(name) == F.col(figure) for name, figure in named if name])
    gap = F.when(F.col(WAS_BURIED), F.col(_BURIED_GAP)).otherwise(0)
    return (
        beside.withColumn(POSITION, F.col(OFFSET) + F.col(_SHIFT) + gap)
        .withColumns({name: F.timestamp_millis(name) for name in (NOW, STAMP)})
        .drop(_SHIFT, _BURIED_GAP, _TOPIC, _PARTITION)
    )
