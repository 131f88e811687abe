"""Pass 1 of a cleaning: what is told of a job's records before any value is read."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame

from pipeline.compact.figures import Places
from pipeline.compact.inputs import Reader, buried_once
from pipeline.compact.newest import FILE, losers, newest_per_key, survivors, with_losers
from pipeline.compact.repeats import Repeats, find_repeats
from pipeline.compact.staying import staying
from pipeline.compact.transactions import with_transactions
from pipeline.plan import Plan
from pipeline.segments.segment import TAIL
from pipeline.stage import INPUTS


@dataclass(frozen=True)
class Survey:
    """What pass 2 goes by: the ``words`` of survivors and losers, the repeats, and the segments that stay in place."""

    words: DataFrame
    repeats: Repeats
    stay: frozenset[str]


@contextmanager
def surveyed(reader: Reader) -> Iterator[Survey]:
    """Survey the inputs of a job's plans; what it keeps in Spark's storage is freed afterwards."""
    plans = reader.plans
    has_tail = any(segment.level == TAIL for plan in plans for segment in plan.inputs)
    apart = has_tail and all(plan.tail_is_older for plan in plans if _has_tail(plan))
    read = reader.head(INPUTS) if apart else reader.records(INPUTS)
    repeats = find_repeats(read, plans)
    newest = newest_per_key(prepared(read, plans, repeats), _buried_gap(plans))
    if not apart:
        yield Survey(survivors(newest), repeats, frozenset())
        return
    newest = newest.persist()
    lost = losers(reader.tail(INPUTS), newest).persist()
    try:
        touched = frozenset(row[FILE] for row in lost.select(FILE).distinct().collect())
        stay = frozenset(path for plan in plans for path in staying(plan, touched))
        yield Survey(with_losers(survivors(newest), lost), repeats, stay)
    finally:
        lost.unpersist()
        newest.unpersist()


def prepared(records: DataFrame, plans: Sequence[Plan], repeats: Repeats) -> DataFrame:
    """``records`` with every offset once, and what their transactions say of them (C10)."""
    records = repeats.left_out_of(records)
    # A plan with either of these has its job alone.
    if plans[0].buried:
        records = buried_once(records)
    return with_transactions(records, plans[0])


def _has_tail(plan: Plan) -> bool:
    return any(segment.level == TAIL for segment in plan.inputs)


def _buried_gap(plans: Sequence[Plan]) -> int:
    return max(places.buried_gap for places in Places.of(plans))
