"""Random histories against a plain model: whatever is landed and cleaned, the newest record of every key is seen."""

import itertools
from collections.abc import Container, Iterable
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnlake.engine.engine import Engine
from firnlake.errors import ConflictError
from firnlake.iceberg.catalog import Lake
from firnlake.job.lane import Lane
from firnlake.table.segment import TAIL
from tests.support.examples import bounded
from tests.support.publishing import publish
from tests.support.topics import DAY, NOW, Record, Topic

KEYS = [b"", b"a", b"b", b"c"]
_numbers = itertools.count()

batches = st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from([None, b"", b"x", b"y"])), min_size=1, max_size=4)
steps = st.lists(st.tuples(batches, st.sampled_from([None, *Lane]), st.booleans()), min_size=2, max_size=5)
clocks = st.lists(st.sampled_from([0, 1, DAY, -DAY, 3 * DAY]), min_size=5, max_size=5)


@bounded(3)
@given(steps, clocks)
def test_c2_c3_c9_in_offset_order(
    lake: Lake,
    engine: Engine,
    history: list[tuple[list[tuple[bytes, bytes | None]], Lane | None, bool]],
    jumps: list[int],
) -> None:
    """Clocks jump, back as well; tombstones may go as soon as the rules let them."""
    topic = Topic(lake, engine, f"random.t{next(_numbers)}").create(delete_retention_ms="0")
    landed: list[Record] = []
    now = NOW
    for (batch, lane, force), jump in zip(history, jumps, strict=False):
        landed += _land(topic, batch, start=len(landed))
        now += jump
        if lane:
            topic.clean(lane, now, force=force)
            _assert_newest_visible(topic, landed)
    topic.clean("full", now, force=True)
    _assert_newest_visible(topic, landed)
    assert len(topic.seen()) == len({record.key for record in topic.seen()}), "one record per key in the tail"


@pytest.mark.nightly
@bounded(3)
@given(steps, clocks, st.sampled_from(["6", "1000"]), st.randoms(use_true_random=False))
def test_c2_c3_c7_c9_with_late_and_repeated_segments(
    lake: Lake,
    engine: Engine,
    history: list[tuple[list[tuple[bytes, bytes | None]], Lane | None, bool]],
    jumps: list[int],
    budget: str,
    random: Random,
) -> None:
    """Batches land in any order and some of them again, while plans are under way that may take only a part of the
    head: no deleted value comes back."""
    topic = Topic(lake, engine, f"random.t{next(_numbers)}")
    topic.create(delete_retention_ms="0", merge_segments="3", plan_max_records=budget)
    starts = list(itertools.accumulate((len(batch) for batch, _, _ in history), initial=0))
    arrivals = list(zip(history, starts, strict=False))
    random.shuffle(arrivals)
    landed: list[Record] = []
    now = NOW
    for ((batch, lane, force), start), jump in zip(arrivals, jumps, strict=False):
        late = _land(topic, batch, start)
        landed += late
        now += jump
        if lane:
            topic.clean(lane, now, force=force)
            _assert_newest_visible(topic, landed, {record.key for record in late} if lane is not Lane.FULL else ())
        _clean_all(topic, now)
        _assert_newest_visible(topic, landed)
        again = random.sample(landed, k=min(len(landed), 3))
        stages = topic.validated(topic.plans("full", now, force=True))
        topic.land(again)
        for stage in stages:
            with suppress(ConflictError):
                publish(topic.lake, stage)
        _clean_all(topic, now)
        _assert_newest_visible(topic, landed)
        assert len(topic.seen()) == len({record.key for record in topic.seen()})


def _clean_all(topic: Topic, now: int) -> None:
    """Run `full` until it has taken the whole head, which may not fit into one plan."""
    while any(level != TAIL for level in topic.levels()):
        assert topic.clean("full", now, force=True), "a head that nothing cleans"


def _land(topic: Topic, batch: Iterable[tuple[bytes, bytes | None]], start: int) -> list[Record]:
    """Land a batch as one segment; what was landed."""
    landed = [Record(offset, key, value) for offset, (key, value) in enumerate(batch, start)]
    topic.land(landed)
    return landed


def _assert_newest_visible(topic: Topic, landed: Iterable[Record], late: Container[bytes | None] = ()) -> None:
    """Every visible record was landed so; the newest of each key is there, unless it is a tombstone that has gone.

    What a writer just added of ``late`` keys is seen until the next `full`: only that knows of removed tombstones.
    """
    known = {record.offset: record for record in landed}
    newest = {known[offset].key: known[offset] for offset in sorted(known)}
    seen = topic.seen()
    assert [known[record.offset] for record in seen] == seen
    visible = {record.key: record for record in seen}
    for key, record in newest.items():
        assert key in late or visible.get(key, record) == record
        assert key in visible or record.value is None
    assert max(known) in {record.offset for record in seen}, "the log end stays"
