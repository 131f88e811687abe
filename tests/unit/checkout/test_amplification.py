"""The model behind the figures of amplification: what paper says of few records, and what holds whatever arrives."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnlake.job.lane import Lane
from firnlake.table.policies import Policies
from firnlake.table.policy import Policy
from firnlake.table.segment import LEVELS, RUN, TAIL
from infra.bench.amplification import Model, amplification
from infra.bench.arrivals import START_MS, Arrivals, uniform

SECOND = 1000
ONLY_FULL = {"firn.profile": "kafka"}
ONLY_MERGE = {"firn.profile": "kafka", "firn.min.cleanable.dirty.ratio": "1", "firn.merge.segments": "2"}


def one_key(records: int, *, deletes: bool = False) -> Arrivals:
    """A record a second, the first at the start, each a segment of the same key."""
    keys = np.zeros(records, dtype=np.int64)
    return Arrivals(keys, np.full(records, deletes), rate=1, per_segment=1)


def looks(properties: dict[str, str], arrivals: Arrivals, **how: Any) -> Iterator[Model]:
    """The model after the look of each second."""
    model = Model(arrivals, Policies.parse("t", properties).default, **how)
    for number in range(1, len(arrivals.keys)):
        model.look(START_MS + number * SECOND)
        yield model


def levels(model: Model) -> list[int]:
    """Number of segments by level."""
    return [sum(segment.level == level for segment in model.segments) for level in LEVELS]


def test_c12_full_cleans_of_one_key() -> None:
    """Looks at 1 to 5 s find 2, 2, 3, 2, 3 records, and clean at 2 : 0, 2 : 1 and 2 : 1 dirty to clean ones."""
    found = [levels(model) for model in looks(ONLY_FULL, one_key(6), leaves_in_place=False)]
    assert found == [[0, 0, 0, 1], [1, 0, 0, 1], [0, 0, 0, 1], [1, 0, 0, 1], [0, 0, 0, 1]]


def test_c13_a_merge_writes_everything_once() -> None:
    *_, merged = looks(ONLY_MERGE, one_key(9))
    assert levels(merged) == [1, 4, 0, 0]
    assert merged.written_bytes == 8 * 1000


def test_c9_a_tombstone_goes_in_two_stages() -> None:
    """Every record is a tombstone of one key: stamped by the clean that finds it the newest, superseded by the next,
    and never gone as the log end."""
    *_, model = looks(ONLY_FULL | {"firn.delete.retention.ms": "0"}, one_key(6, deletes=True))
    assert [segment.last_offset for segment in model.segments] == [5]
    assert model.plans == {Lane.FULL: 3}


def test_c16_segments_of_the_tail_that_lose_nothing_stay() -> None:
    """Keys are never updated: what a full clean wrote once is only read by the next."""
    arrivals = Arrivals(np.arange(2_000), np.zeros(2_000, dtype=np.bool_))
    rules = ONLY_FULL | {"firn.segment.bytes": "100000", "firn.min.cleanable.dirty.ratio": "0"}
    left, whole = ([*looks(rules, arrivals, leaves_in_place=stays)][-1] for stays in (True, False))
    assert left.written_bytes <= 2 * left.bytes < 10 * left.bytes < whole.written_bytes


ARRIVALS = replace(uniform(2_500, records=50_000), rate=0.4)
"""A twentieth of the records and keys of docs/amplification.md, and larger segments: less is merged."""


def test_amplification_of_kafkas_rules() -> None:
    found = amplification(ARRIVALS, {"profile": "kafka"})
    assert found["written per byte"] == pytest.approx(1.04, rel=0.1)
    assert found["held per byte"] == pytest.approx(1.47, rel=0.1)


POLICIES = st.builds(
    Policy,
    merge_segments=st.integers(2, 6),
    clean_segments=st.integers(1, 6),
    tier_runs=st.integers(2, 3),
    min_cleanable_dirty_ratio=st.sampled_from((0.0, 0.5, 0.9)),
    full_interval_ms=st.sampled_from((-1, 600_000)),
    active_segments=st.integers(0, 2),
    delete_retention_ms=st.sampled_from((0, 300_000)),
    min_compaction_lag_ms=st.sampled_from((0, 120_000)),
    segment_bytes=st.sampled_from((20_000, 10**9)),
)


@settings(max_examples=60)
@given(
    keys=st.integers(1, 300),
    deletes=st.floats(0, 0.3),
    seed=st.integers(0, 9),
    per_segment=st.integers(1, 30),
    policy=POLICIES,
    waits=st.lists(st.integers(0, 300 * SECOND), max_size=12),
)
def test_c3_the_newest_record_of_every_key_is_there(
    keys: int, deletes: float, seed: int, per_segment: int, policy: Policy, waits: list[int]
) -> None:
    """Whatever arrives, under whatever policy, at any clock: C2, C3, C4 and C24 hold of the model."""
    drawn = uniform(keys, records=900, deletes=deletes, seed=seed)
    arrivals = Arrivals(drawn.keys, drawn.tombstones, rate=2, per_segment=per_segment)
    model = Model(arrivals, policy)
    now_ms = START_MS
    for wait in waits:
        now_ms += wait
        model.land(now_ms)
        due, before = model.is_due(now_ms), model.plans.total()
        model.look(now_ms)
        assert due or model.plans.total() == before, "a look that is skipped would have found nothing"
        check(arrivals, model)


def check(arrivals: Arrivals, model: Model) -> None:
    """Each newest record is visible or a tombstone; no key is twice where a level promises it; facts are so."""
    landed = arrivals.keys[: model.landed]
    newest = set({key: offset for offset, key in enumerate(landed.tolist())}.values())
    held = [model.offsets(segment) for segment in model.segments]
    visible = {int(offset) for offsets in held for offset in offsets}
    assert all(arrivals.tombstones[offset] for offset in newest - visible)
    assert not model.landed or model.landed - 1 in visible
    for segment, offsets in zip(model.segments, held, strict=True):
        assert (segment.records, segment.base_offset, segment.last_offset) == (len(offsets), offsets[0], offsets[-1])
        assert segment.bytes == arrivals.bytes[offsets].sum()
        if segment.level >= RUN:
            assert len(set(arrivals.keys[offsets].tolist())) == segment.records
    tail = [
        arrivals.keys[offsets] for segment, offsets in zip(model.segments, held, strict=True) if segment.level == TAIL
    ]
    assert len(np.unique(np.concatenate([*tail, landed[:0]]))) == sum(map(len, tail))
