"""Offsets that were written more than once: an at-least-once writer repeats records after a restart.

Identical records are kept once. Two different records on one offset are refused: which of them the log holds, nobody
can say. Nothing of this costs more than one look at the offsets unless there are repeats.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from expectations.shown import shown_key
from pipeline.compact.bitmap import bit, bitmaps, has, with_words
from pipeline.compact.comparable import comparable
from pipeline.compact.working import (
    HORIZON,
    KEY,
    LEVEL,
    OFFSET,
    PLAN,
    POSITION,
    REPEATABLE_FROM,
    WAS_BURIED,
    column,
    record_columns,
)
from pipeline.errors import RefusedError
from pipeline.plan import Plan
from pipeline.policy.policy import Samples
from pipeline.segments.segment import RUN

_PLACE, _COMPARED, _REPEATED = "_firn_place", "_firn_compared", "_firn_repeated"

SHOWN_BYTES = 60
"""So much of a key or value is shown of records that contradict each other."""


@dataclass(frozen=True)
class Repeats:
    """The offsets that occur more than once, how many records are too many by the number of the plan, and the plans
    that are refused because two different records of theirs have the same offset."""

    words: DataFrame | None
    counts: Mapping[int, int]
    refused: Mapping[int, RefusedError]

    def left_out_of(self, records: DataFrame) -> DataFrame:
        """``records`` without those of refused plans, and with every offset once; the few in question are the only ones
        that are moved whole."""
        if self.refused:
            records = records.where(~F.col(PLAN).isin(*self.refused))
        if self.words is None:
            return records
        marked = with_words(records, F.col(POSITION), self.words)
        repeated = has(_REPEATED, F.col(POSITION))
        # The copy that was cleaned furthest stays: it may carry a delete horizon.
        order = Window.partitionBy(POSITION).orderBy(F.col(LEVEL).desc(), F.col(HORIZON).desc_nulls_last())
        rows = marked.where(repeated).withColumn(_PLACE, F.row_number().over(order))
        return marked.where(~repeated).unionByName(rows.where(F.col(_PLACE) == 1).drop(_PLACE)).drop(_REPEATED)


NO_REPEATS = Repeats(None, {}, {})


def find_repeats(inputs: DataFrame, plans: Sequence[Plan], samples: Samples) -> Repeats:
    """What is repeated among ``inputs`` of ``plans``; ``samples`` says what a refusal shows of the records."""
    if all(repeatable_from(plan) is None for plan in plans):
        return NO_REPEATS
    suspects = inputs.where((F.col(OFFSET) >= F.col(REPEATABLE_FROM)) & ~F.col(WAS_BURIED))
    counts = _count(suspects)
    if not counts:
        return NO_REPEATS
    twice = suspects.groupBy(POSITION).count().where(F.col("count") > 1)
    words = bitmaps(twice, F.col(POSITION), {_REPEATED: F.lit(True)})
    rows = with_words(suspects, F.col(POSITION), words).where(has(_REPEATED, F.col(POSITION))).drop(_REPEATED)
    refused = {number: error for number in counts if (error := _contradiction(rows, number, plans[number], samples))}
    return Repeats(words, counts, refused)


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


def _count(suspects: DataFrame) -> dict[int, int]:
    """Records minus distinct offsets by plan, where there is a difference.

    Counted in words of 64: segments are in offset order, so that most of it is summed up before anything is shuffled.
    """
    words = suspects.groupBy(PLAN, F.shiftright(POSITION, 6)).agg(
        F.count(F.lit(1)).alias("records"), F.bit_or(bit(F.col(POSITION))).alias("bits")
    )
    repeated = F.sum(F.col("records") - F.bit_count("bits"))
    found = words.groupBy(PLAN).agg(repeated.alias("repeated")).where(F.col("repeated") > 0).collect()
    return {row[PLAN]: row["repeated"] for row in found}


def _contradiction(rows: DataFrame, number: int, plan: Plan, samples: Samples) -> RefusedError | None:
    """Why ``plan`` is refused: two different records at one offset; None when all copies are identical."""
    own = rows.where(F.col(PLAN) == number)
    names = record_columns(rows)
    compared = {
        f"{_COMPARED}{place}": comparable(column(name), rows.schema[name].dataType) for place, name in enumerate(names)
    }
    distinct = own.withColumns(compared).dropDuplicates(list(compared)).drop(*compared)
    found = distinct.groupBy(OFFSET).count().where(F.col("count") > 1).orderBy(OFFSET).limit(1).collect()
    if not found:
        return None
    offset = found[0][OFFSET]
    key = shown_key(F.col(KEY), rows.schema[KEY].dataType, "keys").alias(KEY)
    shown = distinct.where(F.col(OFFSET) == offset).select(key, *(column(name) for name in names)).limit(2).collect()
    places = [segment.path for segment in plan.inputs if segment.base_offset <= offset <= segment.last_offset]
    return RefusedError(
        f"table {plan.table}: offset {offset} of {plan.topic_partition} holds different records: "
        f"{_describe(shown, samples)}; allowed: one record per offset, or identical copies of it "
        f"(segments {', '.join(places)})"
    )


def _describe(records: Sequence[Row], samples: Samples) -> str:
    """Two records as far as they may be shown, and in which columns they differ."""
    one, other = (record.asDict() for record in records)
    keys = " and ".join(f"(key={record.pop(KEY) or 'NULL'})" for record in (one, other))
    if samples == "full":
        return " and ".join(map(_whole, (one, other)))
    differing = f"they differ in {', '.join(name for name in one if one[name] != other[name])}"
    return differing if samples == "none" else f"{keys}, {differing}"


def _whole(record: Mapping[str, object]) -> str:
    return "(" + ", ".join(f"{name}={_short(value)}" for name, value in record.items() if value is not None) + ")"


def _short(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        text = repr(bytes(value[:SHOWN_BYTES]))[1:]
        return text if len(value) <= SHOWN_BYTES else f"{text}… ({len(value)} bytes)"
    text = str(value)
    return text if len(text) <= SHOWN_BYTES else f"{text[:SHOWN_BYTES]}…"
