"""Offsets that were written more than once: an at-least-once writer repeats records after a restart.

Identical records are kept once. Two different records on one offset are refused: which of them the log holds, nobody
can say. Nothing of this costs more than one look at the offsets unless there are repeats.
"""

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from pipeline.compact.comparable import comparable
from pipeline.compact.working import HORIZON, LEVEL, OFFSET, WAS_BURIED, column, record_columns
from pipeline.errors import RefusedError
from pipeline.plan import Plan
from pipeline.segments.segment import RUN

_PLACE, _COMPARED = "_firn_place", "_firn_compared"

SHOWN_BYTES = 60
"""So much of a key or value is shown of records that contradict each other."""


def without_repeats(inputs: DataFrame, plan: Plan) -> tuple[DataFrame, int]:
    """The inputs with every offset once, and how many records that took out.

    Raises RefusedError when two different records have the same offset; both are shown.
    """
    start = repeatable_from(plan)
    if start is None:
        return inputs, 0
    suspects = inputs.where((F.col(OFFSET) >= start) & ~F.col(WAS_BURIED))
    repeated = _count(suspects)
    if not repeated:
        return inputs, 0
    offsets = suspects.groupBy(OFFSET).count().where(F.col("count") > 1).select(OFFSET)
    rows = suspects.join(offsets, on=OFFSET, how="left_semi")
    _refuse_contradictions(rows, plan)
    # The copy that was cleaned furthest stays: it may carry a delete horizon.
    order = Window.partitionBy(OFFSET).orderBy(F.col(LEVEL).desc(), F.col(HORIZON).desc_nulls_last())
    first = rows.withColumn(_PLACE, F.row_number().over(order)).where(F.col(_PLACE) == 1).drop(_PLACE)
    return inputs.join(offsets, on=OFFSET, how="left_anti").unionByName(first), repeated


def repeatable_from(plan: Plan) -> int | None:
    """The lowest offset that may occur twice in the plan's inputs; None when none may.

    A landed or merged segment may repeat an offset within itself; runs and tails hold each once, so they matter only
    where they overlap with another input, or are listed twice.
    """
    starts = []
    end = -1
    for segment in sorted(plan.inputs, key=lambda segment: segment.base_offset):
        repeats = segment.level < RUN or segment.copies > 1 or segment.base_offset <= end
        if segment.records and repeats:
            starts.append(segment.base_offset)
        end = max(end, segment.last_offset)
    return min(starts, default=None)


def _count(suspects: DataFrame) -> int:
    """Records minus distinct offsets, counted in words of 64 offsets: segments are in offset order, so that most of
    it is summed up before anything is shuffled."""
    bit = F.call_function("shiftleft", F.lit(1).cast("bigint"), F.col(OFFSET).bitwiseAND(63).cast("int"))
    words = suspects.groupBy(F.shiftright(OFFSET, 6)).agg(
        F.count(F.lit(1)).alias("records"), F.bit_or(bit).alias("bits")
    )
    (total,) = words.agg(F.sum(F.col("records") - F.bit_count("bits")).alias("repeated")).collect()
    return int(total["repeated"] or 0)


def _refuse_contradictions(rows: DataFrame, plan: Plan) -> None:
    compared = {
        f"{_COMPARED}{number}": comparable(column(name), rows.schema[name].dataType)
        for number, name in enumerate(record_columns(rows))
    }
    distinct = rows.withColumns(compared).dropDuplicates(list(compared)).drop(*compared)
    found = distinct.groupBy(OFFSET).count().where(F.col("count") > 1).orderBy(OFFSET).limit(1).collect()
    if not found:
        return
    offset = found[0][OFFSET]
    shown = (
        distinct.where(F.col(OFFSET) == offset)
        .select(*(column(name) for name in record_columns(rows)))
        .limit(2)
        .collect()
    )
    places = [segment.path for segment in plan.inputs if segment.base_offset <= offset <= segment.last_offset]
    raise RefusedError(
        f"table {plan.table}: offset {offset} of {plan.topic_partition} holds different records: "
        f"{' and '.join(_describe(row) for row in shown)}; allowed: one record per offset, or identical copies of it "
        f"(segments {', '.join(places)})"
    )


def _describe(row: Row) -> str:
    return "(" + ", ".join(f"{name}={_short(value)}" for name, value in row.asDict().items() if value is not None) + ")"


def _short(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        text = repr(bytes(value[:SHOWN_BYTES]))[1:]
        return text if len(value) <= SHOWN_BYTES else f"{text}… ({len(value)} bytes)"
    text = str(value)
    return text if len(text) <= SHOWN_BYTES else f"{text[:SHOWN_BYTES]}…"
