"""Parts of what a stage reads: the records of some plans, and those of segments that stay where they are."""

from collections.abc import Collection, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.lake.columns import Columns
from pipeline.lake.condition import quoted
from pipeline.lake.spark import of_topic_partition
from pipeline.plan import Plan
from pipeline.plan.plan import span
from pipeline.plan.staying import series
from pipeline.segments.segment import TAIL


def of_plans(records: DataFrame, plans: Sequence[Plan], columns: Columns) -> DataFrame:
    """The ``records`` of the topic partitions of ``plans``."""
    return records.where(_any([_of(plan, columns) for plan in plans]))


def left_in_place(inputs: DataFrame, plans: Sequence[Plan], replaced: Collection[str], columns: Columns) -> DataFrame:
    """The records of those ``inputs`` of ``plans`` whose segments are not among the paths ``replaced``.

    Found by their offsets: only a segment that shares none with another may stay, so no other file is opened.
    """
    offset, level = quoted(columns.offset), quoted(columns.level)
    found = []
    for plan in plans:
        # What is not replaced, in series without a replaced segment between them.
        spans = [offsets for left in series(plan, replaced) if (offsets := span(left))]
        ranges = [f"{offset} BETWEEN {lowest} AND {highest}" for lowest, highest in spans]
        if ranges:
            # As text: Spark makes a balanced tree of a long chain of ORs.
            found.append(_of(plan, columns) & F.expr(f"{level} = {TAIL} AND ({' OR '.join(ranges)})"))
    return inputs.where(_any(found))


def _of(plan: Plan, columns: Columns) -> Column:
    return of_topic_partition(columns, plan.topic, plan.partition)


def _any(conditions: Sequence[Column]) -> Column:
    return reduce(lambda one, other: one | other, conditions, F.lit(False))
