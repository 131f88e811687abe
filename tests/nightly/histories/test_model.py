"""Random histories against two plain models: readers see the newest record of every key, and nothing else comes back;
a lane does with each record what `firn explain` says, it goes with the lane that is named, or stays (C2 to C19).
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random
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

Seen = dict[int, tuple[str, str]]
"""Key and value of each visible record, by offset; the value of a tombstone is empty."""

_RECORD = re.compile(r"(?P<key>\w+)=(?P<value>\w*)@(?P<offset>\d+)")
PAIRS = st.tuples(st.sampled_from(["empty", "a", "b", "c"]), st.sampled_from(["", "empty", "x", "y"]))
LANES = ("retain", "erase", "convert", "merge", "clean", "tier", "full")


def seen(scenario: Scenario) -> Seen:
    (line,) = scenario.answer("read")
    words = [] if line == "no record" else line.split()
    records = [_RECORD.match(word) for word in words]
    return {int(one["offset"]): (one["key"], one["value"]) for one in records if one}


def land(scenario: Scenario, records: Mapping[int, tuple[str, str]], how: str = "land") -> None:
    scenario.answer(" ".join([how, *(f"{key}={value}@{offset}" for offset, (key, value) in sorted(records.items()))]))


def newest(records: Seen) -> Seen:
    """The newest record of each key."""
    offsets = {records[offset][0]: offset for offset in sorted(records)}
    return {offset: records[offset] for offset in offsets.values()}


class Late(NamedTuple):
    """Records that land, the lane that runs, by which clock, and whether it is forced."""

    pairs: list[tuple[str, str]]
    lane: str
    forced: bool
    clock: str


late = st.builds(
    Late,
    pairs=st.lists(PAIRS, min_size=1, max_size=4),
    lane=st.sampled_from(LANES),
    forced=st.booleans(),
    clock=st.sampled_from(["0", "1ms", "1d", "-1d", "3d"]),
)


@bounded(3)
@given(
    st.lists(late, min_size=2, max_size=5),
    st.sampled_from([6, 1000]),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_c2_c3_c4_c9_with_late_and_repeated_segments(
    lake: Lake,
    engine: Engine,
    tmp_path_factory: pytest.TempPathFactory,
    history: list[Late],
    budget: int,
    many_keys: bool,
    random: Random,
) -> None:
    """Batches land in any order and some of them again, while plans are under way that may take only a part of the
    head, or more keys than memory may hold; clocks jump, back as well; tombstones go as soon as the rules let them."""
    scenario = Scenario(OpenCatalog(lake, engine=engine), tmp_path_factory.mktemp("history"))
    scenario.answer(f"create delete.retention.ms=0 merge.segments=3 plan.max.records={budget}")
    landed: Seen = {}
    starts = [sum(len(one.pairs) for one in history[:place]) for place in range(len(history))]
    arrivals = list(zip(history, starts, strict=True))
    random.shuffle(arrivals)
    with pytest.MonkeyPatch.context() as patched:
        if many_keys:
            patched.setattr("firnlake.compact.survey.KEY_BYTES", 500)
        for step, start in arrivals:
            batch = dict(enumerate(step.pairs, start))
            land(scenario, batch)
            landed |= batch
            scenario.answer(f"at {step.clock}")
            scenario.answer(step.lane + "!" * step.forced)
            assert_newest(scenario, landed, ignored={key for key, _ in batch.values()})
            clean_all(scenario)
            assert_newest(scenario, landed)
            again = {offset: landed[offset] for offset in random.sample(sorted(landed), k=min(len(landed), 3))}
            staged = scenario.answer("stage full!")
            land(scenario, again)
            refused = [] if staged else scenario.answer("publish")
            assert not refused or "plan again" in refused[0]
            clean_all(scenario)
            assert_newest(scenario, landed)
            keys = [key for key, _ in seen(scenario).values()]
            assert len(keys) == len(set(keys)), "one record per key in the tail"


def clean_all(scenario: Scenario) -> None:
    """Run lane full until it has taken the whole head, which may not fit into one plan."""
    for _ in range(20):
        if scenario.answer("full!") == ["nothing due"] or "L0" not in scenario.answer("levels")[0]:
            return
    raise AssertionError("a head that nothing cleans")


def assert_newest(scenario: Scenario, landed: Seen, ignored: Iterable[str] = ()) -> None:
    """Every visible record has landed so; the newest of each key is there, unless it is a tombstone that has gone.

    What a writer just added of the ``ignored`` keys is seen until the next `full`: only that knows removed tombstones.
    """
    found = seen(scenario)
    assert found.items() <= landed.items()
    visible = {key: (offset, value) for offset, (key, value) in sorted(found.items())}
    for offset, (key, value) in newest(landed).items():
        if key not in ignored:
            assert visible.get(key, (offset, "")) == (offset, value)
    assert max(landed) in found, "the log end stays"


# What is explained, and what happens.

KEYS = (None, b"", b"a", b"b")
NAMES = {None: "-", b"": "empty", b"a": "a", b"b": "b"}
_GOES = re.compile(r"; lane (\w+) removes it(?:, and is due|( once it is due))$")

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
        before = visible(scenario)
        assert Counter((one.key, one.offset) for one in said) == before
        done = scenario.answer(lane + "!" * force)
        refused = [line for line in done if line.startswith("failed")]
        assert all("holds different records" in line for line in refused)
        gone = before - visible(scenario)
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


def visible(scenario: Scenario) -> Counter[tuple[bytes | None, int]]:
    """Key and offset of what readers see."""
    return Counter((row["key"], row["offset"]) for row in scenario.rows())
