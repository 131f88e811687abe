"""A lane does with each record what `firn explain` says: it goes with the lane that is named, or stays (C2 to C19)."""

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnlake.compact.compact import compact
from firnlake.engine.engine import Engine
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.explain.key import explain_key
from firnlake.job.lane import Lane
from firnlake.publish.publish_jobs import publish_stages, retain_plans
from firnlake.validate.validate import validate
from tests.support.examples import bounded
from tests.support.topics import DAY, NOW, Record, Topic

pytestmark = pytest.mark.nightly

HOUR = 3_600_000
_numbers = itertools.count()
_GOES = re.compile(r"; lane (\w+) removes it, (?:and|but) is (not )?due$")

keys = st.sampled_from([None, b"", b"a", b"b"])
logs = st.lists(st.tuples(keys, st.booleans(), st.sampled_from([0, HOUR, 3 * DAY])), min_size=12, max_size=12)
"""The log: key, whether it is a tombstone, and age in milliseconds when it lands, by offset."""
batches = st.lists(st.integers(0, 11), min_size=1, max_size=5)
"""The offsets of a segment: late ones, and some that have landed before."""
steps = st.lists(
    st.tuples(
        st.lists(st.tuples(batches, st.sampled_from([False, False, False, False, False, True])), max_size=3),
        st.sampled_from([0, HOUR, DAY]),
        st.sampled_from([Lane.RETAIN, Lane.MERGE, Lane.CLEAN, Lane.TIER, Lane.FULL, Lane.FULL, Lane.FULL]),
        st.booleans(),
    ),
    min_size=2,
    max_size=6,
)
"""Segments that land, some with other contents than the log has; the time until a lane runs; whether it is forced."""
policies = st.fixed_dictionaries(
    {
        "cleanup_policy": st.sampled_from(["compact", "compact", "compact,delete", "delete"]),
        "retention_ms": st.sampled_from([str(2 * DAY), "-1"]),
        "min_compaction_lag_ms": st.sampled_from(["0", str(HOUR)]),
        "active_segments": st.sampled_from(["0", "1"]),
        "delete_retention_ms": st.sampled_from(["0", str(HOUR)]),
        "min_cleanable_dirty_ratio": st.sampled_from(["0", "0.5", "1"]),
        "clean_segments": st.sampled_from(["1", "2"]),
        "null_keys": st.sampled_from(["quarantine", "quarantine", "fail"]),
        "plan_max_records": st.sampled_from(["6", "1000"]),
    }
)


class Said(NamedTuple):
    """What `firn explain` says of one record: the lane that removes it, if any, and whether that is due."""

    key: bytes | None
    offset: int
    lane: str | None
    due: bool

    @property
    def record(self) -> tuple[bytes | None, int]:
        return self.key, self.offset


@bounded(6)
@given(logs, steps, policies)
def test_what_explain_says_is_what_happens(
    lake: Lake,
    engine: Engine,
    log: list[tuple[bytes | None, bool, int]],
    history: list[tuple[list[tuple[list[int], bool]], int, Lane, bool]],
    policy: dict[str, str],
) -> None:
    topic = Topic(lake, engine, f"explained.t{next(_numbers)}").create(**policy)
    now = NOW
    for landing, passing_ms, lane, force in history:
        for offsets, differs in landing:
            topic.land([_record(log, offset, differs=differs and not place) for place, offset in enumerate(offsets)])
        now += passing_ms
        said = _explained(topic, now)
        before = _seen(topic)
        assert Counter(one.record for one in said) == before
        planned, refused = _run(topic, lane, now, force=force)
        gone = before - _seen(topic)
        named = Counter(one.record for one in said if one.lane == lane)
        if refused:
            assert not gone
            if lane is Lane.FULL:
                assert not [one for one in _explained(topic, now) if one.lane == lane]
        elif lane is Lane.FULL and planned:
            assert not named - gone, "what is said to go, goes"
            assert not gone - Counter(one.record for one in said if one.lane), "what is said to stay, stays"
        elif force:
            assert not gone - Counter(one.record for one in said if one.lane), "what is said to stay, stays"
        else:
            assert gone == Counter(one.record for one in said if one.lane == lane and one.due)


def _record(log: Sequence[tuple[bytes | None, bool, int]], offset: int, *, differs: bool) -> Record:
    key, tombstone, age_ms = log[offset]
    value = None if tombstone else b"%d" % offset
    return Record(offset, key, b"another" if differs else value, timestamp_ms=NOW - age_ms)


def _explained(topic: Topic, now: int) -> list[Said]:
    found = []
    for key in (None, b"", b"a", b"b"):
        for kept in explain_key(topic.lake, topic.table, None if key is None else (key,), now).kept:
            goes = _GOES.search(kept.reason.text)
            found.append(Said(key, kept.record.offset, goes[1] if goes else None, bool(goes and not goes[2])))
    return found


def _seen(topic: Topic) -> Counter[tuple[bytes | None, int]]:
    return Counter((record.key, record.offset) for record in topic.seen())


def _run(topic: Topic, lane: Lane, now: int, *, force: bool) -> tuple[bool, bool]:
    """Run ``lane``; whether it had plans, and whether they were refused, for different records at one offset."""
    plans = topic.plans(lane, now, force=force)
    if lane is Lane.RETAIN:
        assert not retain_plans(topic.lake, plans).failures
        return bool(plans), False
    outcomes = compact(topic.lake, plans, topic.engine)
    errors = [str(outcome.error) for outcome in outcomes if outcome.error]
    assert all("holds different records" in error for error in errors), errors
    stages = {outcome.stage: [outcome.plan.id] for outcome in outcomes if not outcome.error}
    assert all(judged.passed for judged in validate(topic.lake, list(stages), topic.engine))
    assert not publish_stages(topic.lake, stages).failures
    return bool(plans), bool(errors)
