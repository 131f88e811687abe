"""Every promise of expectations/ against a result that keeps it and results that break it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from firnlake_expectations.claim import Finding, Verdict
from firnlake_expectations.judge import judge
from firnlake_expectations.promises.table import promises_of
from firnlake_expectations.tables import AFTER, BEFORE
from tests.support.judged import (
    BEFORE_HORIZON,
    CLAIM,
    DELETED_D,
    EMPTY_KEY,
    FIRST_SEEN,
    INPUTS,
    KAFKAS,
    LOG_END,
    MERGE,
    NEW_A,
    NO_KEY,
    NOW,
    OLD_A,
    OLD_D,
    OUTPUTS,
    PAST,
    PAST_HORIZON,
    RECORD_COUNTS,
    SCHEMA,
    STAMP,
    STAMPED_H,
    STRANGERS_STAMP,
    B,
    Record,
    Records,
    failed,
    instead,
    judge_all,
    part,
    stays,
    table,
    without,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from firnlake_expectations.claim import Claim


@pytest.fixture
def judged(tmp_path: Path) -> Callable[[Records, Records, Claim], Verdict]:
    """Judges two lists of records, with their values."""
    return lambda inputs, outputs, claim: judge_all(table(inputs), table(outputs), [claim], tmp_path)[claim.plan_id]


def test_a_correct_cleaning_passes_every_promise(judged: Callable[..., Verdict]) -> None:
    verdict = judged(INPUTS, OUTPUTS, CLAIM)
    assert failed(verdict) == {}
    assert verdict.passed
    assert len(verdict.expectations) == len(promises_of(CLAIM)) == 15
    sentences = {finding.name: finding.sentence for finding in verdict.expectations}
    assert sentences["expect_one_record_per_key"].startswith("Every key has exactly one record")
    observed = {finding.name: finding.observed for finding in verdict.expectations}
    assert observed["expect_one_record_per_key"] == "0 of 9 keys."
    assert (
        observed[RECORD_COUNTS]
        == "0 of 14 records; 14 read = 9 kept + 3 superseded + 1 tombstone removed + 1 quarantined."
    )
    assert observed["expect_log_end_kept"] == "0 of 1 log end."
    assert Verdict.from_dict(json.loads(json.dumps(verdict.to_dict()))) == verdict


def test_full_makes_the_same_promises_at_its_own_level(judged: Callable[..., Verdict]) -> None:
    tail = [replace(r, level=3) if r.level == 2 else r for r in OUTPUTS]
    verdict = judged(INPUTS, tail, replace(CLAIM, lane="full", level_out=3))
    assert verdict.passed


# what was done to the stage, what it holds then, which promise it breaks, offset and key of the offender
SABOTAGE = {
    "newest record dropped": (without(B), "expect_newest_record_kept", 1, "b"),
    "older record instead of the newest": ([*without(NEW_A), stays(OLD_A)], "expect_newest_record_kept", 2, "a"),
    "older record kept as well": ([*OUTPUTS, stays(OLD_A)], "expect_one_record_per_key", 2, "a"),
    "key resurrected": ([*without(DELETED_D), stays(OLD_D)], "expect_tombstones_kept", 5, "d"),
    "tombstone gone before its horizon": (without(BEFORE_HORIZON), "expect_tombstones_kept", 7, "f"),
    "tombstone gone at first sight": (without(FIRST_SEEN), "expect_tombstones_kept", 3, "c"),
    "tombstone gone with what it supersedes": (without(STAMPED_H), "expect_tombstones_kept", 12, "h"),
    "tombstone gone by a stranger's stamp": (without(STRANGERS_STAMP), "expect_tombstones_kept", 10, "g"),
    "tombstone kept though removable": (instead(PAST_HORIZON, level=2), "expect_tombstones_gone", 6, "e"),
    "removed tombstone not kept beside": (without(PAST_HORIZON), "expect_tombstones_gone", 6, "e"),
    "removed tombstone changed": (instead(PAST_HORIZON, timestamp=NOW), "expect_tombstones_gone", 6, "e"),
    "record kept beside that is none": (instead(B, level=-2), "expect_tombstones_gone", 1, "b"),
    "tombstone not stamped": (instead(FIRST_SEEN, delete_horizon=None), "expect_delete_horizons", 3, "c"),
    "horizon moved": (instead(BEFORE_HORIZON, delete_horizon=STAMP), "expect_delete_horizons", 7, "f"),
    "horizon not renewed": (instead(STAMPED_H, delete_horizon=PAST), "expect_delete_horizons", 12, "h"),
    "horizon on a value": (instead(B, delete_horizon=STAMP), "expect_delete_horizons", 1, "b"),
    "value changed": (instead(B, value=b"w"), "expect_records_unchanged", 1, "b"),
    "empty value became NULL": (instead(EMPTY_KEY, value=None), "expect_records_unchanged", 8, ""),
    "timestamp changed": (instead(B, timestamp=NOW), "expect_records_unchanged", 1, "b"),
    "header value NULL became empty": (instead(B, headers=[("h", b"")]), "expect_records_unchanged", 1, "b"),
    "headers lost": (instead(B, headers=None), "expect_records_unchanged", 1, "b"),
    "record invented": ([*OUTPUTS, stays(Record(13, b"new"))], "expect_records_unchanged", 13, "new"),
    "record renumbered": (instead(B, offset=13), "expect_records_unchanged", 1, "b"),
    "null key lost": (without(NO_KEY), "expect_no_null_keys", 9, None),
    "null key changed": (instead(NO_KEY, value=b"w"), "expect_no_null_keys", 9, None),
    "null key left in the topic": (instead(NO_KEY, level=2), "expect_no_null_keys", 9, None),
    "key quarantined": (instead(B, level=-1), "expect_output_level", 1, "b"),
    "wrong level": (instead(B, level=None), "expect_output_level", 1, "b"),
    "record of another partition": (instead(B, partition=4), "expect_one_topic_partition", 1, "b"),
}


def in_world(number: int, records: Records) -> Records:
    """The records in a world of their own: other keys, offsets a hundred further on, and no log end."""
    return [
        replace(r, offset=100 * number + r.offset, key=None if r.key is None else b"%d-" % number + r.key)
        for r in records
        if r.offset != LOG_END.offset
    ]


@pytest.fixture(scope="module")
def sabotaged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finding]:
    """All sabotage at once, each in a world of its own, so that one validation has to find all of it."""
    inputs = [r for number in range(len(SABOTAGE)) for r in in_world(number, INPUTS)]
    outputs = [r for number, case in enumerate(SABOTAGE.values()) for r in in_world(number, case[0])]
    claim = replace(CLAIM, log_end_offset=100 * len(SABOTAGE))
    reports = tmp_path_factory.mktemp("sabotage")
    judge_all(table(inputs), table(outputs), [claim], reports)
    stored = json.loads(next(reports.rglob("*.json")).read_text(encoding="utf-8"))
    return failed(Verdict.from_dict(stored["verdict"]))


@pytest.mark.parametrize("name", SABOTAGE)
def test_a_broken_promise_is_named_with_its_offender(name: str, sabotaged: dict[str, Finding]) -> None:
    number = list(SABOTAGE).index(name)
    _, promise, offset, key = SABOTAGE[name]
    finding = sabotaged[promise]
    offender = (100 * number + offset, None if key is None else f"{number}-{key}")
    assert offender in {(sample.offset, sample.key) for sample in finding.samples}
    assert all(sample.found != sample.expected for sample in finding.samples)
    assert "{" not in finding.observed + str(finding.samples)


@pytest.mark.parametrize(
    ("outputs", "promise", "offset", "key"),
    [
        (without(EMPTY_KEY), "expect_newest_record_kept", 8, "(empty)"),
        (without(LOG_END), "expect_log_end_kept", 20, "z"),
    ],
    ids=["empty key dropped", "log end removed"],
)
def test_what_exists_only_once_is_missed(
    outputs: Records, promise: str, offset: int, key: str, judged: Callable[..., Verdict]
) -> None:
    samples = failed(judged(INPUTS, outputs, CLAIM))[promise].samples
    assert [(sample.offset, sample.key) for sample in samples] == [(offset, key)]


@pytest.mark.parametrize(
    ("name", "only"),
    [
        ("value changed", {"expect_records_unchanged"}),
        ("horizon moved", {"expect_delete_horizons"}),
        ("wrong level", {"expect_output_level"}),
        ("record invented", {"expect_records_unchanged", RECORD_COUNTS}),
    ],
)
def test_a_broken_promise_does_not_accuse_the_others(name: str, only: set[str], judged: Callable[..., Verdict]) -> None:
    assert set(failed(judged(INPUTS, SABOTAGE[name][0], CLAIM))) == only


def test_null_keys_are_not_merged_into_one(judged: Callable[..., Verdict]) -> None:
    inputs = [*INPUTS, Record(13, None, b"x")]
    verdict = judged(inputs, OUTPUTS, replace(CLAIM, records_in=15, superseded=4))
    found = failed(verdict)
    assert [sample.offset for sample in found["expect_no_null_keys"].samples] == [13]
    assert RECORD_COUNTS in found


def test_a_tombstone_that_is_not_clean_is_neither_removed_nor_stamped(judged: Callable[..., Verdict]) -> None:
    """C7: with a segment outside the inputs that may hold offsets from 4 on, only offset 3 is clean."""
    unstamped = {5: None, 10: None, 12: None}
    outputs = [
        replace(r, delete_horizon=unstamped.get(r.offset, r.delete_horizon)) for r in instead(PAST_HORIZON, level=2)
    ]
    claim = replace(CLAIM, clean_below=4, records_out=10, tombstones_removed=0)
    assert failed(judged(INPUTS, outputs, claim)) == {}
    assert set(failed(judged(INPUTS, OUTPUTS, replace(CLAIM, clean_below=4)))) == {
        "expect_tombstones_kept",
        "expect_tombstones_gone",
        "expect_delete_horizons",
    }


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ({"records_in": 15, "superseded": 4}, "14 records read (15 claimed); 3 records superseded (4 claimed)"),
        ({"records_out": 10, "quarantined": 0}, "9 records kept (10 claimed); 1 records quarantined (0 claimed)"),
        ({"tombstones_removed": 0}, "14 read ≠ 9 kept + 3 superseded + 1 quarantined as claimed"),
    ],
)
def test_a_wrong_claim_is_found_out(lie: dict[str, Any], words: str, judged: Callable[..., Verdict]) -> None:
    verdict = judged(INPUTS, OUTPUTS, replace(CLAIM, **lie))
    assert set(failed(verdict)) == {RECORD_COUNTS}
    assert words in failed(verdict)[RECORD_COUNTS].observed


def test_a_log_end_below_what_was_read_is_found_out(judged: Callable[..., Verdict]) -> None:
    assert "expect_log_end_kept" in failed(judged(INPUTS, OUTPUTS, replace(CLAIM, log_end_offset=19)))


def test_an_empty_stage_is_right_when_everything_was_removable(judged: Callable[..., Verdict]) -> None:
    claim = replace(CLAIM, records_in=1, records_out=0, superseded=0, tombstones_removed=1, quarantined=0)
    assert judged([PAST_HORIZON], [replace(PAST_HORIZON, level=-2)], claim).passed


def test_an_empty_stage_is_wrong_when_records_had_to_stay(judged: Callable[..., Verdict]) -> None:
    names = set(failed(judged(INPUTS, [], CLAIM)))
    assert {"expect_newest_record_kept", "expect_tombstones_kept", "expect_log_end_kept", RECORD_COUNTS} <= names


def test_nothing_read_and_nothing_written_adds_up(judged: Callable[..., Verdict]) -> None:
    claim = replace(CLAIM, records_in=0, records_out=0, superseded=0, tombstones_removed=0, quarantined=0)
    assert judged([], [], claim).passed


@pytest.mark.parametrize("twin", [replace(B, value=b"another"), Record(B.offset, b"another key")])
def test_an_offset_with_two_records_is_named(twin: Record, judged: Callable[..., Verdict]) -> None:
    verdict = judged([*INPUTS, twin], OUTPUTS, replace(CLAIM, records_in=15, superseded=4, repeated=1))
    finding = failed(verdict)["expect_distinct_offsets"]
    assert finding.observed == "1 offset holds different records."
    assert [(s.offset, s.found, s.expected) for s in finding.samples] == [
        (1, "2 records, not all the same", "one record")
    ]


@pytest.mark.parametrize("twin", [B, NO_KEY, STAMPED_H, replace(BEFORE_HORIZON, level=0, delete_horizon=None)])
def test_a_record_written_twice_is_kept_once(twin: Record, judged: Callable[..., Verdict]) -> None:
    verdict = judged([*INPUTS, twin], OUTPUTS, replace(CLAIM, records_in=15, superseded=4, repeated=1))
    assert failed(verdict) == {}
    assert RECORD_COUNTS in failed(judged([*INPUTS, twin], OUTPUTS, replace(CLAIM, records_in=15, superseded=4)))


LATE = Record(14, b"i", b"deleted", level=0)
RISEN = Record(15, b"i", None, level=-2, delete_horizon=PAST)


def test_c9_a_removed_tombstone_comes_back_over_a_late_record(judged: Callable[..., Verdict]) -> None:
    claim = replace(CLAIM, records_in=16, records_out=10, superseded=4, restored=1)
    inputs = [*INPUTS, LATE, RISEN]
    back = stays(RISEN, STAMP)
    assert failed(judged(inputs, [*OUTPUTS, back], claim)) == {}
    value_is_back = [*OUTPUTS, stays(LATE)]
    assert "expect_tombstones_kept" in failed(judged(inputs, value_is_back, claim))
    assert "expect_delete_horizons" in failed(judged(inputs, [*OUTPUTS, replace(back, delete_horizon=PAST)], claim))


def test_c9_a_removed_tombstone_that_nothing_needs_stays_away(judged: Callable[..., Verdict]) -> None:
    unneeded = [Record(2, b"a", None, level=-2), Record(1, b"y", None, level=-2)]
    assert failed(judged([*INPUTS, *unneeded], OUTPUTS, CLAIM)) == {}
    back = stays(replace(unneeded[1], offset=16), STAMP)
    found = failed(judged([*INPUTS, replace(unneeded[1], offset=16)], [*OUTPUTS, back], CLAIM))
    assert {"expect_records_unchanged", RECORD_COUNTS} <= set(found)


def test_a_merge_is_a_copy_of_everything_it_read(judged: Callable[..., Verdict]) -> None:
    """C13: duplicates, tombstones, records without a key and horizons included."""
    inputs = [*INPUTS, B]
    claim = replace(MERGE, records_in=15, records_out=15)
    verdict = judged(inputs, [replace(r, level=1) for r in inputs], claim)
    assert failed(verdict) == {}
    assert verdict.passed


@pytest.mark.parametrize(
    ("outputs", "promise", "offset"),
    [
        ([r for r in INPUTS if r is not OLD_A], "expect_same_records", 0),
        ([*INPUTS, B], "expect_same_records", 1),
        ([replace(r, value=b"w") if r is B else r for r in INPUTS], "expect_same_records", 1),
        ([replace(r, key=b"k") if r is NO_KEY else r for r in INPUTS], "expect_same_records", 9),
        ([replace(r, delete_horizon=None) if r is LOG_END else r for r in INPUTS], "expect_same_records", 20),
    ],
    ids=["lost", "twice", "value", "key", "horizon"],
)
def test_a_merge_that_is_no_copy_fails(
    outputs: Records, promise: str, offset: int, judged: Callable[..., Verdict]
) -> None:
    verdict = judged(INPUTS, [replace(r, level=1) for r in outputs], MERGE)
    assert offset in {sample.offset for sample in failed(verdict)[promise].samples}


def test_a_merge_that_keeps_old_levels_fails(judged: Callable[..., Verdict]) -> None:
    assert set(failed(judged(INPUTS, INPUTS, MERGE))) == {"expect_output_level"}


@pytest.mark.parametrize("side", [BEFORE, AFTER])
def test_c23_a_file_with_another_number_of_records_than_its_manifest_says_is_named(side: str) -> None:
    parts = [part(BEFORE, table(INPUTS)), part(AFTER, table(OUTPUTS))]
    torn = [replace(one, plan=0, name=f"{one.side}.parquet", records=99) for one in parts if one.side == side]
    others = [one for one in parts if one.side != side]
    (found,) = judge([*torn, *others], SCHEMA, [CLAIM], KAFKAS)
    assert dict(found.broken) == {"torn_file": 1}
    (sample,) = found.samples["torn_file"]
    records = len(INPUTS if side == BEFORE else OUTPUTS)
    assert (sample.found, sample.expected) == (f"record count {records} in {side}.parquet", "record count 99")
