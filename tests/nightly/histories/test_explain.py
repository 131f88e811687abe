"""A lane does with each record what `firn explain` says: it goes with the lane that is named, or stays (C2 to C19)."""

import re
from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnlake.door import OpenCatalog
from firnlake.engine.engine import Engine
from firnlake.iceberg.catalog import Lake
from tests.support.examples import bounded
from tests.support.scenario import Scenario

pytestmark = pytest.mark.nightly

KEYS = (None, b"", b"a", b"b")
NAMES = {None: "-", b"": "empty", b"a": "a", b"b": "b"}
_GOES = re.compile(r"; lane (\w+) removes it, (?:and|but) is (not )?due$")

logs = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from(["", "x"]), st.sampled_from(["0", "1h", "3d"])),
    min_size=12,
    max_size=12,
)
"""The log: key, value or nothing, and age when it lands, by offset."""
batches = st.lists(st.integers(0, 11), min_size=1, max_size=5)
"""The offsets of a segment: late ones, and some that have landed before."""
steps = st.lists(
    st.tuples(
        st.lists(st.tuples(batches, st.sampled_from([False, False, False, False, False, True])), max_size=3),
        st.sampled_from([0, 1, 24]),
        st.sampled_from(["retain", "merge", "clean", "tier", "full", "full", "full"]),
        st.booleans(),
    ),
    min_size=2,
    max_size=6,
)
"""Segments that land, some with other contents than the log has; hours until a lane runs; whether it is forced."""
policies = st.fixed_dictionaries(
    {
        "cleanup.policy": st.sampled_from(["compact", "compact", "compact,delete", "delete"]),
        "retention.ms": st.sampled_from(["2d", "-1"]),
        "min.compaction.lag.ms": st.sampled_from(["0", "1h"]),
        "active.segments": st.sampled_from(["0", "1"]),
        "delete.retention.ms": st.sampled_from(["0", "1h"]),
        "min.cleanable.dirty.ratio": st.sampled_from(["0", "0.5", "1"]),
        "clean.segments": st.sampled_from(["1", "2"]),
        "null.keys": st.sampled_from(["quarantine", "quarantine", "fail"]),
        "plan.max.records": st.sampled_from(["6", "1000"]),
    }
)


class Said(NamedTuple):
    """What `firn explain` says of one record: the lane that removes it, if any, and whether that is due."""

    key: bytes | None
    offset: int
    lane: str | None
    due: bool


@bounded(6)
@given(logs, steps, policies)
def test_what_explain_says_is_what_happens(
    lake: Lake,
    engine: Engine,
    tmp_path_factory: pytest.TempPathFactory,
    log: list[tuple[bytes | None, str, str]],
    history: list[tuple[list[tuple[list[int], bool]], int, str, bool]],
    policy: dict[str, str],
) -> None:
    scenario = Scenario(OpenCatalog(lake, engine=engine), tmp_path_factory.mktemp("explained"))
    scenario.answer("create " + " ".join(f"{name}={value}" for name, value in policy.items()))
    hours = 0
    for landing, passing, lane, force in history:
        for offsets, differs in landing:
            other = offsets[0] if differs else None
            scenario.answer("land " + " ".join(written(log, offset, other=offset == other) for offset in offsets))
        hours += passing
        scenario.answer(f"at {hours}h")
        said = explained(scenario)
        before = seen(scenario)
        assert Counter((one.key, one.offset) for one in said) == before
        done = scenario.answer(lane + "!" * force)
        refused = [line for line in done if line.startswith("failed")]
        assert all("holds different records" in line for line in refused)
        gone = before - seen(scenario)
        named = Counter((one.key, one.offset) for one in said if one.lane == lane)
        may_go = Counter((one.key, one.offset) for one in said if one.lane)
        if refused:
            assert not gone
            if lane == "full":
                assert not [one for one in explained(scenario) if one.lane == lane]
        elif lane == "full" and done != ["nothing due"]:
            assert not named - gone, "what is said to go, goes"
            assert not gone - may_go, "what is said to stay, stays"
        elif force:
            assert not gone - may_go, "what is said to stay, stays"
        else:
            assert gone == Counter((one.key, one.offset) for one in said if one.lane == lane and one.due)


def written(log: list[tuple[bytes | None, str, str]], offset: int, *, other: bool) -> str:
    key, value, age = log[offset]
    return f"{NAMES[key]}={'another' if other else value and f'{value}{offset}'}@{offset},{age}"


def explained(scenario: Scenario) -> list[Said]:
    found = []
    for key in KEYS:
        for kept in scenario.table.explain_key(key).kept:
            goes = _GOES.search(kept.reason.text)
            found.append(Said(key, kept.record.offset, goes[1] if goes else None, bool(goes and not goes[2])))
    return found


def seen(scenario: Scenario) -> Counter[tuple[bytes | None, int]]:
    return Counter((row["key"], row["offset"]) for row in scenario.rows())
