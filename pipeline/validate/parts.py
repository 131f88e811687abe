"""Parts of what a stage reads: the records of some plans, and those of segments that stay where they are."""

from collections.abc import Collection, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.lake.columns import Columns
from pipeline.lake.condition import quoted
from pipeline.plan import Plan
from pipeline.plan.plan import Input
from pipeline.plan.staying import series
from pipeline.segments.segment import TAIL


def of_plans(records: DataFrame, plans: Sequence[Plan], columns: Columns) -> DataFrame:
    """The ``records`` of the topic partitions of ``plans``."""
    return records.where(_any([_is_of(plan, columns) for plan in plans]))


def left_in_place(inputs: DataFrame, plans: Sequence[Plan], replaced: Collection[str], columns: Columns) -> DataFrame:
    """The records of those ``inputs`` of ``plans`` whose segments are not among the paths ``replaced``.

    Found by their offsets: only a segment that shares none with another may stay, so no other file is opened.
    """
    offset, level = quoted(columns.offset), quoted(columns.level)
    found = []
    for plan in plans:
        # What is not replaced, in series without a replaced segment between them.
        ranges = [f"{offset} {within}" for left in series(plan, replaced) if (within := _range(left))]
        if ranges:
            # As text: Spark makes a balanced tree of a long chain of ORs.
            found.append(_is_of(plan, columns) & F.expr(f"{level} = {TAIL} AND ({' OR '.join(ranges)})"))
    return inputs.where(_any(found))


def _range(found: Sequence[Input]) -> str | None:
    """From which offset to which, inclusive, the records of ``found`` lie; None without a record."""
    held = [segment for segment in found if segment.records]
    if not held:
        return None
    lowest, highest = min(one.base_offset for one in held), max(one.last_offset for one in held)
    return f"BETWEEN {lowest} AND {highest}"


def _is_of(plan: Plan, columns: Columns) -> Column:
    where = F.lit(True)
    for name, value in ((columns.topic, plan.topic), (columns.partition, plan.partition)):
        if name:
            where &= F.col(quoted(name)) == value
    return where


def _any(conditions: Sequence[Column]) -> Column:
    return reduce(lambda one, other: one | other, conditions, F.lit(False))
