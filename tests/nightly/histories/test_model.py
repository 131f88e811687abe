"""Random histories against a plain model of the rules: readers see the newest record of every key, and nothing else
comes back (C2, C3, C4, C9, C27).
"""

import re
from collections.abc import Callable, Iterable, Mapping
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

Made = Callable[[], Scenario]
Seen = dict[int, tuple[str, str]]
"""Key and value of each visible record, by offset; the value of a tombstone is empty."""

_RECORD = re.compile(r"(?P<key>\w+)=(?P<value>\w*)@(?P<offset>\d+)")
PAIRS = st.tuples(st.sampled_from(["empty", "a", "b", "c"]), st.sampled_from(["", "empty", "x", "y"]))
LANES = ("retain", "erase", "convert", "merge", "clean", "tier", "full")


@pytest.fixture
def made(lake: Lake, engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A table of its own for each history."""
    return lambda: Scenario(OpenCatalog(lake, engine=engine), tmp_path_factory.mktemp("history"))


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
    made: Made, history: list[Late], budget: int, many_keys: bool, random: Random
) -> None:
    """Batches land in any order and some of them again, while plans are under way that may take only a part of the
    head, or more keys than memory may hold; clocks jump, back as well; tombstones go as soon as the rules let them."""
    scenario = made()
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


class Upsert(NamedTuple):
    """Records that land, what is deleted, and the lane that runs."""

    pairs: list[tuple[str, str]]
    victims: list[int]
    """Records that position deletes hide, as places among the visible ones, counted round and round."""
    keys: list[str]
    values: list[str]
    """Keys, and values, that equality deletes hide."""
    lane: str
    meanwhile: bool
    """True when the equality deletes land while the lane's plans are under way."""


upserts = st.builds(
    Upsert,
    pairs=st.lists(
        st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(["", "x", "y"])), min_size=1, max_size=3
    ),
    victims=st.lists(st.integers(0, 20), max_size=2),
    keys=st.lists(st.sampled_from(["a", "b"]), max_size=2, unique=True),
    values=st.lists(st.sampled_from(["x", "-"]), max_size=1),
    lane=st.sampled_from(["convert", "merge", "clean", "tier", "full", "full"]),
    meanwhile=st.booleans(),
)


@bounded(3)
@given(st.lists(upserts, min_size=3, max_size=7), st.sampled_from(["create", "upserted", "upserted unpartitioned"]))
def test_c2_c3_c4_c27_with_row_level_deletes(made: Made, history: list[Upsert], how: str) -> None:
    """Whatever readers see is cleaned by the rules, and nothing else is ever seen; `convert` changes nothing."""
    scenario = made()
    scenario.answer(f"{how} tier.runs=2 delete.retention.ms=0 position.deletes.max=2")
    visible: Seen = {}
    landed = 0
    for number, step in enumerate(history):
        scenario.answer(f"at {number}d")
        batch = dict(enumerate(step.pairs, landed))
        landed += len(batch)
        land(scenario, batch, "append")
        visible |= batch
        chosen = {sorted(visible)[victim % len(visible)] for victim in step.victims}
        if chosen:
            scenario.answer("delete " + " ".join(map(str, chosen)))
        visible = {offset: one for offset, one in visible.items() if offset not in chosen}
        staged = step.meanwhile and not scenario.answer(f"stage {step.lane}!")
        hidden = hide(scenario, step) if how != "create" else set()
        visible = {offset: one for offset, one in visible.items() if one[0] not in hidden and one[1] not in hidden}
        assert seen(scenario) == visible
        said = scenario.answer("publish") if staged else scenario.answer(f"{step.lane}!") * (not step.meanwhile)
        # Only a delete by another column than the key is in the way of what supersedes.
        assert "failed" not in str(said)
        assert not (staged and said) or (step.values and "plan again" in said[0])
        after = seen(scenario)
        assert after.items() <= visible.items(), "nothing comes back"
        if step.lane in ("convert", "merge"):
            assert after == visible, "nothing goes"
        assert all(offset in after or not value for offset, (_, value) in newest(visible).items())
        assert not visible or step.meanwhile or max(visible) in after, "the log end that readers see stays"
        visible = after
    scenario.answer("convert!")
    assert seen(scenario) == visible
    assert scenario.answer("deletes")[0].endswith("equality 0")
    scenario.answer(f"at {len(history)}d")
    scenario.answer("full!")
    keys = [key for key, _ in seen(scenario).values()]
    assert len(keys) == len(set(keys)), "one record per key in the tail"


def hide(scenario: Scenario, step: Upsert) -> set[str]:
    """Commit the equality deletes of ``step``; the keys and values that they hide."""
    if step.values:
        scenario.answer(f"delete_equal value {step.values[0]}")
    if step.keys:
        scenario.answer("delete_equal key " + " ".join(step.keys))
    return {*step.keys, *("" if value == "-" else value for value in step.values)}
