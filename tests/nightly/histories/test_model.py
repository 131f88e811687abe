"""Random histories against a plain model of the rules: readers see the newest record of every key, and nothing else
comes back (C2, C3, C4, C9).
"""

import re
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
            patched.setattr("firnlake.compact.keys.KEY_BYTES", 500)
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
