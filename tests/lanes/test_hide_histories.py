"""Random histories of lane `hide` against a plain model, and beside a table where the lane never runs (C28)."""

import itertools
from collections.abc import Iterable, Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from firnlake.engine.engine import Engine
from firnlake.iceberg.catalog import Lake
from firnlake.job.lane import Lane
from tests.lanes.test_histories import batches
from tests.support.examples import bounded
from tests.support.row_deletes import visible_rows
from tests.support.topics import DAY, NOW, Record, Topic

_numbers = itertools.count()
lanes = st.lists(st.sampled_from([Lane.MERGE, Lane.CLEAN, Lane.TIER, Lane.FULL]), min_size=0, max_size=2)
arrivals = st.lists(st.tuples(batches, lanes), min_size=3, max_size=6)
clocks = st.lists(st.sampled_from([0, 1, DAY, 3 * DAY]), min_size=6, max_size=6)

Arrivals = list[tuple[list[tuple[bytes, bytes | None]], list[Lane]]]


@bounded(2)
@given(arrivals, st.randoms(use_true_random=False), st.sampled_from(["5", "1000"]))
def test_c2_c3_c28_each_key_shows_its_newest_record_alone(
    lake: Lake, engine: Engine, history: Arrivals, random: Random, budget: str
) -> None:
    """Whatever lands late or twice, and whatever other lanes do in between."""
    topic = Topic(lake, engine, f"hide.t{next(_numbers)}")
    topic.create(hide_max_lag_ms="0", plan_max_records=budget, delete_retention_ms=str(DAY))
    landed: list[Record] = []
    for batch, todo in _shuffled(history, random):
        landed += batch
        topic.land(batch, random.sample(landed, k=min(len(landed), 2)))
        before = topic.seen()
        while topic.clean("hide", force=True):
            pass
        _assert_hidden(topic, landed, before)
        for lane in todo:
            topic.clean(lane, force=True)
            _assert_newest_visible(topic, landed)
    while topic.clean("hide", force=True):
        pass
    _assert_one_per_key(topic)
    assert sorted(row["offset"] for row in visible_rows(lake.table(topic.table))) == topic.offsets()


@bounded(2)
@given(arrivals, clocks, st.randoms(use_true_random=False))
def test_c28_cleanings_give_what_they_give_without_lane_hide(
    lake: Lake, engine: Engine, history: Arrivals, jumps: Sequence[int], random: Random
) -> None:
    """The same records, levels and delete horizons, whatever was hidden before."""
    number = next(_numbers)
    hiding, plain = (Topic(lake, engine, f"hide.{name}{number}") for name in ("m", "p"))
    for topic in (hiding, plain):
        topic.create(delete_retention_ms=str(DAY), **({"hide_max_lag_ms": "0"} if topic is hiding else {}))
    now = NOW
    for (batch, todo), jump in zip(_shuffled(history, random), jumps, strict=False):
        now += jump
        for topic in (hiding, plain):
            topic.land(batch)
        hiding.clean("hide", now, force=True)
        for lane in todo:
            for topic in (hiding, plain):
                topic.clean(lane, now, force=True)
            hiding.clean("hide", now, force=True)
    for later in (0, DAY, 2 * DAY):
        for topic in (hiding, plain):
            topic.clean("full", now + later, force=True)
        assert _held(hiding) == _held(plain)
        hiding.clean("hide", now, force=True)


def _held(topic: Topic) -> list[tuple[object, ...]]:
    names = ("offset", "key", "value", "level", "delete_horizon")
    return [tuple(row[name] for name in names) for row in topic.rows()]


def _shuffled(history: Arrivals, random: Random) -> list[tuple[list[Record], list[Lane]]]:
    """The arrivals in any order, their offsets in the order of the history."""
    starts = itertools.accumulate((len(batch) for batch, _ in history), initial=0)
    found = [
        ([Record(offset, key, value) for offset, (key, value) in enumerate(batch, start)], todo)
        for (batch, todo), start in zip(history, starts, strict=False)
    ]
    random.shuffle(found)
    return found


def _assert_hidden(topic: Topic, landed: Iterable[Record], before: Sequence[Record]) -> None:
    """Every record that was hidden has a newer visible one of its key, and each key shows its newest record alone."""
    after = topic.seen()
    newest = {record.key: record.offset for record in after}
    assert set(after) <= set(before)
    assert all(newest[gone.key] > gone.offset for gone in set(before) - set(after))
    _assert_newest_visible(topic, landed)
    _assert_one_per_key(topic)


def _assert_one_per_key(topic: Topic) -> None:
    """But for late records below a stamped tombstone."""
    newest = {record.key: record.offset for record in topic.seen()}
    stamped = topic.horizons()
    older = [one for one in topic.seen() if one.offset < newest[one.key] and newest[one.key] not in stamped]
    assert older == []


def _assert_newest_visible(topic: Topic, landed: Iterable[Record]) -> None:
    """The newest record of each key is there, unless it is a tombstone that has gone."""
    known = {record.offset: record for record in landed}
    newest = {known[offset].key: known[offset] for offset in sorted(known)}
    visible = {record.key: record for record in topic.seen()}
    for key, record in newest.items():
        assert visible.get(key, record) == record or key not in visible
        assert key in visible or record.value is None
    assert max(known) in topic.offsets(), "the log end stays"
