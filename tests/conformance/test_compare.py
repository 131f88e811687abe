"""The comparison itself: it sees what it should, and excuses nothing else. No JVM."""

from typing import Any

import pytest

from firnlake.job.lane import Lane
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
    tally = compare(Group("g", mode, (workload,), 0), [[cleaned]], [[seen]])
    return set(tally.differences), tally.disagreements


def test_equal_sets() -> None:
    assert judged(SUPERSEDED, {1: KEPT, 2: KEPT}, {1: HELD, 2: HELD}) == (set(), [])


@pytest.mark.parametrize("mode", list(Mode))
def test_c2_c3_a_record_that_only_kafka_has(mode: Mode) -> None:
    rules, problems = judged(SUPERSEDED, {1: KEPT, 2: KEPT}, {2: HELD}, mode)
    assert rules == set()
    assert "only Kafka has" in problems[0]


def test_a_superseded_record_that_only_firn_has() -> None:
    both: dict[int, firn.Held] = {0: HELD, 1: HELD, 2: HELD}
    assert "only Firn has" in judged(SUPERSEDED, {1: KEPT, 2: KEPT}, both)[1][0]
    assert "only Firn has" in judged(SUPERSEDED, {1: KEPT, 2: KEPT}, both, Mode.LEVELS)[1][0]
    for level_of_older in (0, 3):
        waiting = {0: HELD._replace(level=level_of_older), 1: HELD._replace(level=0), 2: HELD}
        assert judged(SUPERSEDED, {1: KEPT, 2: KEPT}, waiting, Mode.LEVELS) == ({Rule.WAITING}, [])


@pytest.mark.parametrize("key", [b"a", None])
def test_c4_the_log_end_only(key: bytes | None) -> None:
    landed = {0: Entry(0, 1, key, None), 1: Entry(1, 1, key, None)}
    held = firn.Held(key, None, None, 3)
    aside = [0] if key is None else []
    assert judged(landed, {}, {1: held}, quarantined=aside) == ({Rule.LOG_END}, [])
    assert "only Firn has" in judged(landed, {}, {0: held}, quarantined=[1] if key is None else [])[1][0]


def test_c9_never_earlier_unless_kafka_did_not_look() -> None:
    landed = {0: Entry(0, 1, b"a", None), 1: Entry(1, 1, b"b", b"v")}
    assert judged(landed, {0: TOMBSTONE, 1: KEPT}, {1: HELD}, passes=()) == ({Rule.IDLE}, [])
    assert "only Kafka has" in judged(landed, {0: TOMBSTONE, 1: KEPT}, {1: HELD})[1][0]
    unasked = judged(landed, {0: TOMBSTONE, 1: KEPT}, {1: HELD}, Mode.TRIGGERED, passes=())
    assert "only Kafka has" in unasked[1][0]
    waits = {0: TOMBSTONE._replace(horizon=NOW + 1), 1: KEPT}
    assert "only Kafka has" in judged(landed, waits, {1: HELD}, passes=())[1][0]


def test_c8_stamps() -> None:
    landed = {0: Entry(0, 1, b"a", None)}
    theirs = {0: TOMBSTONE._replace(horizon=NOW + 5)}

    def stamped(horizon: int | None, mode: Mode) -> list[str]:
        return judged(landed, theirs, {0: firn.Held(b"a", None, horizon, 3)}, mode)[1]

    assert stamped(NOW + 5, Mode.FULL) == []
    assert "horizon" in stamped(NOW + 6, Mode.FULL)[0]
    assert stamped(NOW + 6, Mode.LEVELS) == stamped(None, Mode.LEVELS) == []
    assert "horizon" in stamped(NOW + 4, Mode.LEVELS)[0]


def test_c8_c9_later_by_levels_while_the_horizon_has_not_passed() -> None:
    landed = {0: Entry(0, 1, b"a", None), 1: Entry(1, 1, b"b", b"v")}
    later = firn.Held(b"a", None, NOW + 1, 3)
    assert judged(landed, {1: KEPT}, {0: later, 1: HELD}, Mode.LEVELS) == ({Rule.LATER}, [])
    assert "only Firn has" in judged(landed, {1: KEPT}, {0: later, 1: HELD})[1][0]
    passed = later._replace(horizon=NOW)
    assert "only Firn has" in judged(landed, {1: KEPT}, {0: passed, 1: HELD}, Mode.LEVELS)[1][0]
    stamped_by_this_cleaning = judged(landed, {1: KEPT}, {0: passed, 1: HELD}, Mode.LEVELS, retention=0)
    assert stamped_by_this_cleaning == ({Rule.LATER}, [])


def test_c9_two_cleanings_at_one_clock_without_retention() -> None:
    landed = {0: Entry(0, 1, b"a", None), 1: Entry(1, 1, b"b", b"v")}
    both = (Lane.MERGE, Lane.CLEAN, Lane.FULL)
    assert judged(landed, {0: TOMBSTONE, 1: KEPT}, {1: HELD}, Mode.LEVELS, lanes=both) == ({Rule.TWICE}, [])
    once = judged(landed, {0: TOMBSTONE, 1: KEPT}, {1: HELD}, Mode.LEVELS, lanes=(Lane.MERGE, Lane.FULL))
    assert "only Kafka has" in once[1][0]


def test_c10_a_marker_may_go_while_kafka_keeps_an_empty_batch_of_its_transaction() -> None:
    landed = {
        0: Entry(0, 1, b"a", b"v", 7),
        1: Entry(1, 1, MARKERS["ABORT"], MARKER_VALUE, 7, "ABORT"),
        2: Entry(2, 1, b"b", b"v"),
    }
    theirs = {1: kafka.Kept(MARKERS["ABORT"], MARKER_VALUE, None), 2: KEPT}
    assert judged(landed, theirs, {2: HELD}, Mode.TRANSACTIONS, empty=(0,)) == ({Rule.EMPTY_BATCH}, [])
    assert "only Kafka has" in judged(landed, theirs, {2: HELD}, Mode.TRANSACTIONS)[1][0]


def test_c5_quarantined_is_what_kafka_dropped() -> None:
    landed = {0: Entry(0, 1, None, b"v"), 1: Entry(1, 1, b"b", b"v")}
    assert judged(landed, {1: KEPT}, {1: HELD}, quarantined=[0]) == (set(), [])
    assert "quarantined []" in judged(landed, {1: KEPT}, {1: HELD})[1][0]
    assert "quarantined [0, 1]" in judged(landed, {1: KEPT}, {1: HELD}, quarantined=[0, 1])[1][0]


def test_c1_other_content_and_c16_another_extent() -> None:
    landed = {0: Entry(0, 1, b"a", b"v")}
    assert "differs" in judged(landed, {0: KEPT}, {0: HELD._replace(value=b"w")})[1][0]
    assert "level 0" in judged(landed, {0: KEPT}, {0: HELD._replace(level=0)})[1][0]


def test_sets_that_differ_at_the_end_are_a_disagreement_whatever_the_rule() -> None:
    landed = SUPERSEDED[0]
    configs = {"delete.retention.ms": "5"}
    workload = Workload("w", configs, 1, active=False, steps=(Step(NOW, ((landed,),)),))
    theirs, ours = kafka.Cleaned(NOW, (), 0, {0: KEPT}), firn.Cleaned(NOW, (), {}, frozenset())
    tally = compare(Group("g", Mode.LEVELS, (workload,), 1), [[theirs]], [[ours]])
    assert "at the end" in tally.disagreements[-1]


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
