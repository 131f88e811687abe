"""Pass 1 of a cleaning: what is told of a job's records before any value is read."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.compact.bitmap import WORD
from pipeline.compact.figures import Places
from pipeline.compact.inputs import Reader, buried_once
from pipeline.compact.newest import FILE, losers, newest_per_key, survivors, with_losers
from pipeline.compact.repeats import Repeats, find_repeats
from pipeline.compact.rounds import Round
from pipeline.compact.transactions import with_transactions
from pipeline.plan import Plan
from pipeline.plan.staying import staying
from pipeline.segments.segment import TAIL
from pipeline.stage import INPUTS


@dataclass(frozen=True)
class Survey:
    """What pass 2 goes by: the ``words`` of survivors and losers, the repeats, and the segments that stay in place."""

    words: DataFrame
    repeats: Repeats
    stay: frozenset[str]
    places: Places

    def words_of(self, part: Round) -> DataFrame:
        """The words of one round of a job with one plan."""
        words = self.words
        if part.lowest is not None:
            words = words.where(F.col(WORD) >= (part.lowest + self.places.shift) >> 6)
        if part.highest is not None:
            words = words.where(F.col(WORD) <= (part.highest + self.places.shift) >> 6)
        return words


@contextmanager
def surveyed(reader: Reader) -> Iterator[Survey]:
    """Survey the inputs of a job's plans; what it keeps in Spark's storage is freed afterwards."""
    plans = reader.plans
    places = next(Places.of(plans))
    has_tail = any(segment.level == TAIL for plan in plans for segment in plan.inputs)
    apart = has_tail and all(plan.tail_is_older for plan in plans if _has_tail(plan))
    read = reader.head(INPUTS) if apart else reader.records(INPUTS)
    repeats = find_repeats(read, plans)
    # A plan with removed tombstones has its job alone.
    newest = newest_per_key(prepared(read, plans, repeats), places.buried_gap)
    if not apart:
        words = survivors(newest)
        try:
            yield Survey(words, repeats, frozenset(), places)
        finally:
            words.unpersist()
        return
    newest = newest.persist()
    lost = losers(reader.tail(INPUTS), newest).persist()
    words = with_losers(survivors(newest), lost)
    try:
        touched = frozenset(row[FILE] for row in lost.select(FILE).distinct().collect())
        stay = frozenset(path for plan in plans for path in staying(plan, touched))
        yield Survey(words, repeats, stay, places)
    finally:
        words.unpersist()
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
