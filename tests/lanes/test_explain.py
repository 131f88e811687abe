"""Compacting does with each record what `firn explain` predicts (C2 to C9)."""

import random
from collections import Counter

import pytest

from firnlake.compact.keep_or_drop import Outcome
from firnlake.inspect.explain.cleaning import Cleaning, KeyRecords
from firnlake.inspect.explain.key import explain_key
from firnlake.job.lane import Lane
from firnlake.job.plan import Plan
from tests.support.examples import times
from tests.support.publishing import publish
from tests.support.topics import DAY, NOW, Record, Topic

KEYS = (None, b"", *(b"%d" % number for number in range(10)))
HOUR = 3_600_000
STEPS = (
    (Lane.FULL, True),
    (Lane.MERGE, True),
    (Lane.CLEAN, False),
    (Lane.FULL, True),
    (Lane.FULL, False),
    (Lane.FULL, False),
)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(times(1)))
def test_an_explained_outcome_is_the_outcome(topic: Topic, seed: int) -> None:
    """Random histories with late files, stamps, horizons, lags and records without a key; lane after lane."""
    chance = random.Random(seed)  # noqa: S311 - the same histories in every run
    topic.create(delete_retention_ms=str(HOUR), min_compaction_lag_ms=str(HOUR), clean_segments="1")
    offsets = sorted(range(45), key=lambda offset: offset + chance.randint(0, 20))
    now = NOW
    seen: Counter[Outcome] = Counter()
    for lane, lands in STEPS:
        for _ in range(3 if lands else 0):
            topic.land([record(offset, now, chance) for offset in sorted(offsets[:5])])
            del offsets[:5]
        now += chance.choice([0, 2 * HOUR]) if lands else DAY
        for plan in topic.plans(lane, now, force=True):
            expected = foretold(topic, plan)
            before = set(topic.offsets())
            (counts,) = [publish(topic.lake, stage).counts for stage in topic.validated([plan])]
            gone = {offset for offset, fate in expected.items() if fate is not Outcome.KEPT}
            assert before - set(topic.offsets()) == gone, (lane, seed)
            assert counts is not None
            fates = Counter(expected.values())
            assert (counts.superseded, counts.tombstones_removed, counts.quarantined) == (
                fates[Outcome.SUPERSEDED], fates[Outcome.TOMBSTONE_REMOVED], fates[Outcome.QUARANTINED],
            )  # fmt: skip
            seen += fates
    plain = (Outcome.KEPT, Outcome.SUPERSEDED, Outcome.QUARANTINED, Outcome.TOMBSTONE_REMOVED)
    assert all(seen[outcome] for outcome in plain), "the histories are rich enough"


def foretold(topic: Topic, plan: Plan) -> dict[int, Outcome]:
    """The outcome of every record under ``plan``, key by key."""
    found: dict[int, Outcome] = {}
    for key in KEYS:
        explained = explain_key(topic.lake, topic.table, None if key is None else (key,), plan.now_ms)
        of_key = KeyRecords(
            [kept.record for kept in explained.kept], explained.removed_tombstones, has_key=key is not None
        )
        cleaning = Cleaning.of(of_key, plan)
        found |= {one.offset: cleaning.outcome(place) for place, one in enumerate(of_key.present)}
    return found


def record(offset: int, now: int, chance: random.Random) -> Record:
    value = None if chance.random() < 0.5 else b"%d" % offset
    return Record(offset, chance.choice(KEYS), value, timestamp_ms=now - chance.choice([0, DAY, DAY, DAY]))
