"""The comparison itself: it sees what it should, and excuses nothing else. No JVM."""

from typing import Any

import pytest

from firnlake.lanes import Lane
from tests.conformance import firn, kafka
from tests.conformance.compare import Rule, compare
from tests.conformance.workloads import MARKER_VALUE, MARKERS, Entry, Group, Mode, Step, Workload, group, groups

NOW = 1_000
KEPT = kafka.Kept(b"a", b"v", None)
HELD = firn.Held(b"a", b"v", None, 3)
TOMBSTONE = kafka.Kept(b"a", None, NOW)
PASSED = (kafka.Pass(0, 9, 0),)
SUPERSEDED = {0: Entry(0, 1, b"a", b"v"), 1: Entry(1, 1, b"a", b"v"), 2: Entry(2, 1, b"b", b"v")}


def judged(
    landed: dict[int, Entry],
    theirs: dict[int, kafka.Kept],
    ours: dict[int, firn.Held],
    mode: Mode = Mode.FULL,
    **facts: Any,
) -> tuple[set[Rule], list[str]]:
    """The rules behind the differences, and the disagreements, of one cleaning."""
    configs = {"delete.retention.ms": str(facts.get("retention", 5))}
    workload = Workload("w", configs, 1, active=False, steps=(Step(NOW, (tuple(landed.values()),)),))
    cleaned = kafka.Cleaned(NOW, facts.get("passes", PASSED), 9, theirs, facts.get("empty", ()))
    seen = firn.Cleaned(NOW, facts.get("lanes", (Lane.FULL,)), ours, frozenset(facts.get("quarantined", ())))
    tally = compare(Group("g", mode, (workload,), facts.get("settling", 0)), [[cleaned]], [[seen]])
    return set(tally.differences), tally.disagreements


FIRST_GOES = {0: Entry(0, 1, b"a", None), 1: Entry(1, 1, b"b", b"v")}
NULL_KEYS = {0: Entry(0, 1, None, None), 1: Entry(1, 1, None, None)}
NULL_KEY = {0: Entry(0, 1, None, b"v"), 1: Entry(1, 1, b"b", b"v")}
ONE = {0: Entry(0, 1, b"a", b"v")}
ABORTED = {
    0: Entry(0, 1, b"a", b"v", 7),
    1: Entry(1, 1, MARKERS["ABORT"], MARKER_VALUE, 7, "ABORT"),
    2: Entry(2, 1, b"b", b"v"),
}
MARKER = kafka.Kept(MARKERS["ABORT"], MARKER_VALUE, None)
LANDED = HELD._replace(level=0)
BOTH = {1: KEPT, 2: KEPT}
GONE = {0: TOMBSTONE, 1: KEPT}
STAMPED = {0: TOMBSTONE._replace(horizon=NOW + 5)}
LEVELS = {"mode": Mode.LEVELS}
ONLY_KAFKA, ONLY_FIRN = "only Kafka has", "only Firn has"


def stamped(horizon: int | None, key: bytes | None = b"a") -> firn.Held:
    """A tombstone with that horizon."""
    return firn.Held(key, None, horizon, 3)


ROWS: list[tuple[dict[int, Entry], dict[int, kafka.Kept], dict[int, firn.Held], dict[str, Any], Rule | str | None]] = [
    (SUPERSEDED, BOTH, {1: HELD, 2: HELD}, {}, None),
    # C2, C3: Firn lacks a record.
    *((SUPERSEDED, BOTH, {2: HELD}, {"mode": mode}, ONLY_KAFKA) for mode in Mode),
    # A superseded record is left.
    (SUPERSEDED, BOTH, {0: HELD, 1: HELD, 2: HELD}, {}, ONLY_FIRN),
    (SUPERSEDED, BOTH, {0: HELD, 1: HELD, 2: HELD}, LEVELS, ONLY_FIRN),
    (SUPERSEDED, BOTH, {0: LANDED, 1: LANDED, 2: HELD}, LEVELS, Rule.WAITING),
    (SUPERSEDED, BOTH, {0: HELD, 1: LANDED, 2: HELD}, LEVELS, Rule.WAITING),
    # C4: the log end, and nothing else.
    ({0: FIRST_GOES[0], 1: Entry(1, 1, b"a", None)}, {}, {1: stamped(None)}, {}, Rule.LOG_END),
    ({0: FIRST_GOES[0], 1: Entry(1, 1, b"a", None)}, {}, {0: stamped(None)}, {}, ONLY_FIRN),
    (NULL_KEYS, {}, {1: stamped(None, None)}, {"quarantined": [0]}, Rule.LOG_END),
    (NULL_KEYS, {}, {0: stamped(None, None)}, {"quarantined": [1]}, ONLY_FIRN),
    # C9: a tombstone goes no earlier than in Kafka, unless Kafka did not look.
    (FIRST_GOES, GONE, {1: HELD}, {"passes": ()}, Rule.IDLE),
    (FIRST_GOES, GONE, {1: HELD}, {}, ONLY_KAFKA),
    (FIRST_GOES, GONE, {1: HELD}, {"passes": (), "mode": Mode.TRIGGERED}, ONLY_KAFKA),
    (FIRST_GOES, STAMPED | {1: KEPT}, {1: HELD}, {"passes": ()}, ONLY_KAFKA),
    # C8: stamps are the same, or later by levels.
    ({0: FIRST_GOES[0]}, STAMPED, {0: stamped(NOW + 5)}, {}, None),
    ({0: FIRST_GOES[0]}, STAMPED, {0: stamped(NOW + 6)}, {}, "horizon"),
    ({0: FIRST_GOES[0]}, STAMPED, {0: stamped(NOW + 6)}, LEVELS, None),
    ({0: FIRST_GOES[0]}, STAMPED, {0: stamped(None)}, LEVELS, None),
    ({0: FIRST_GOES[0]}, STAMPED, {0: stamped(NOW + 4)}, LEVELS, "horizon"),
    # C8, C9: later by levels, while the horizon has not passed.
    (FIRST_GOES, {1: KEPT}, {0: stamped(NOW + 1), 1: HELD}, LEVELS, Rule.LATER),
    (FIRST_GOES, {1: KEPT}, {0: stamped(NOW + 1), 1: HELD}, {}, ONLY_FIRN),
    (FIRST_GOES, {1: KEPT}, {0: stamped(NOW), 1: HELD}, LEVELS, ONLY_FIRN),
    (FIRST_GOES, {1: KEPT}, {0: stamped(NOW), 1: HELD}, LEVELS | {"retention": 0}, Rule.LATER),
    # C9: two cleanings at one clock, without retention.
    (FIRST_GOES, GONE, {1: HELD}, LEVELS | {"lanes": (Lane.MERGE, Lane.CLEAN, Lane.FULL)}, Rule.TWICE),
    (FIRST_GOES, GONE, {1: HELD}, LEVELS | {"lanes": (Lane.MERGE, Lane.FULL)}, ONLY_KAFKA),
    # C10: Kafka keeps an empty batch of the marker's transaction.
    (ABORTED, {1: MARKER, 2: KEPT}, {2: HELD}, {"mode": Mode.TRANSACTIONS, "empty": (0,)}, Rule.EMPTY_BATCH),
    (ABORTED, {1: MARKER, 2: KEPT}, {2: HELD}, {"mode": Mode.TRANSACTIONS}, ONLY_KAFKA),
    # C5: quarantined is what Kafka dropped.
    (NULL_KEY, {1: KEPT}, {1: HELD}, {"quarantined": [0]}, None),
    (NULL_KEY, {1: KEPT}, {1: HELD}, {}, "quarantined []"),
    (NULL_KEY, {1: KEPT}, {1: HELD}, {"quarantined": [0, 1]}, "quarantined [0, 1]"),
    # C1, C16: another content, another extent.
    (ONE, {0: KEPT}, {0: HELD._replace(value=b"w")}, {}, "differs"),
    (ONE, {0: KEPT}, {0: LANDED}, {}, "level 0"),
    # In the end the sets are the same, whatever the rule.
    (SUPERSEDED, BOTH, {0: LANDED, 1: LANDED, 2: HELD}, LEVELS | {"settling": 1}, "at the end"),
]


@pytest.mark.parametrize(("landed", "theirs", "ours", "facts", "said"), ROWS)
def test_c1_c2_c3_c4_c5_c8_c9_c10_c16_a_difference_is_explained_by_a_rule_or_is_told(
    landed: dict[int, Entry],
    theirs: dict[int, kafka.Kept],
    ours: dict[int, firn.Held],
    facts: dict[str, Any],
    said: Rule | str | None,
) -> None:
    rules, problems = judged(landed, theirs, ours, **facts)
    if said is None or isinstance(said, Rule):
        assert (rules, problems) == ({said} if said else set(), [])
    else:
        assert any(said in problem for problem in problems), problems


def test_workloads_are_a_function_of_their_seed_and_cover_what_they_should() -> None:
    assert list(groups(40, 4)) == list(groups(40, 4))
    assert list(groups(48, 4))[:5] == list(groups(40, 4))
    chosen = [workload for one in groups(300, 1) for workload in one.workloads]
    assert len({workload.id for workload in chosen}) == 300
    entries = [entry for workload in chosen for entry in workload.entries]
    assert {entry.key for entry in entries} >= {None, b"", b"k0"}
    assert {entry.value for entry in entries} == {None, b"", b"v", b".", MARKER_VALUE}
    assert {workload.active for workload in chosen} == {True, False}
    assert any(not step.segments for workload in chosen for step in workload.steps), "a cleaning with nothing new"
    assert any(workload.configs["delete.retention.ms"] == "0" for workload in chosen)
    assert any("min.compaction.lag.ms" in workload.configs for workload in chosen)
    assert any("max.compaction.lag.ms" in workload.configs for workload in chosen)
    assert group("one", Mode.FULL, 1) != group("another", Mode.FULL, 1)
