"""Pass 1 of a cleaning: what is told of a job's records before any value is read."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.compact.bitmap import WORD
from pipeline.compact.figures import Places
from pipeline.compact.inputs import Reader, buried_once
from pipeline.compact.newest import FILE, extent, losers, newest_per_key, survivors, with_losers
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
    tail: int = 0
    """Records of the tail that are read again: they survive unless they are told to lose."""
    left: Mapping[str, float] = field(default_factory=dict)
    """How many records of a segment, by path, are about to be written again; without it: not known."""

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
    tailed = [plan for plan in plans if plan.has_tail]
    apart = bool(tailed) and all(plan.tail_is_older for plan in tailed)
    read = reader.head(INPUTS) if apart else reader.records(INPUTS)
    repeats = find_repeats(read, plans, reader.samples)
    sound = [plan for number, plan in enumerate(plans) if number not in repeats.refused]
    # A plan with removed tombstones has its job alone.
    newest = newest_per_key(prepared(read, plans, repeats), places.buried_gap)
    if not apart:
        yield Survey(survivors(newest), repeats, frozenset(), places)
        return
    with persisted(newest) as newest:
        keys = extent(newest)
        with persisted(losers(reader.tail(INPUTS), newest, keys)) as lost:
            losses = {row[FILE]: row["count"] for row in lost.groupBy(FILE).count().collect()}
            stay = frozenset(path for plan in plans for path in staying(plan, losses.keys()))
            again = [one for plan in sound for one in plan.inputs if one.path not in stay]
            tail = [one for one in again if one.level == TAIL]
            head = [one for one in again if one.level != TAIL]
            survive = keys.count / max(1, sum(one.records for one in head))
            left = {one.path: one.records * survive for one in head}
            left |= {one.path: float(one.records - losses.get(one.path, 0)) for one in tail}
            count = sum(one.records for one in tail)
            yield Survey(with_losers(newest, lost), repeats, stay, places, count, left)


@contextmanager
def persisted(frame: DataFrame, level: StorageLevel = StorageLevel.MEMORY_AND_DISK_DESER) -> Iterator[DataFrame]:
    """``frame``, computed at most once while it is in use."""
    kept = frame.persist(level)
    try:
        yield kept
    finally:
        kept.unpersist()


def prepared(records: DataFrame, plans: Sequence[Plan], repeats: Repeats) -> DataFrame:
    """``records`` with every offset once, and what their transactions say of them (C10)."""
    records = repeats.left_out_of(records)
    # A plan with either of these has its job alone.
    if plans[0].buried:
        records = buried_once(records)
    return with_transactions(records, plans[0])
