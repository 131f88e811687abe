"""Plans that are judged together: each on its own records, by fingerprint or by values, with segments left in place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from firnlake_expectations.docs import build_pages
from tests.support.judged import (
    CLAIM,
    EMPTY_KEY,
    INPUTS,
    LATER,
    MERGE,
    OUTPUTS,
    PAST,
    RECORD_COUNTS,
    B,
    Record,
    Records,
    failed,
    fingerprint_of,
    instead,
    judge_all,
    table,
    without,
)
from tests.unit.expectations.test_promises import SABOTAGE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from pathlib import Path

    from firnlake_expectations.claim import Claim, Verdict

OTHER_BITS = {
    "removed tombstone changed",
    "value changed",
    "empty value became NULL",
    "timestamp changed",
    "header value NULL became empty",
    "headers lost",
    "null key changed",
}
"""Sabotage of what only a fingerprint or a look at the values tells."""


def of(partition: int, records: Records) -> Records:
    return [replace(record, partition=partition) for record in records]


def claim(partition: int, like: Claim = CLAIM) -> Claim:
    return replace(like, partition=partition, plan_id=f"plan-{partition}")


def offender(sabotage: str) -> tuple[int, str | None]:
    """Offset and key of what a sample has to show."""
    _, _, offset, key = SABOTAGE[sabotage]
    return offset, "(empty)" if key == "" else key


def offending(verdict: Verdict, sabotage: str) -> set[tuple[int | None, str | None]]:
    """The samples of the promise that the sabotage breaks."""
    return {(sample.offset, sample.key) for sample in failed(verdict)[SABOTAGE[sabotage][1]].samples}


def judge_plans(
    reports: Path,
    sides: Mapping[int, tuple[Records, Records]],
    like: Claim = CLAIM,
    taken: Mapping[int, Records] | None = None,
    left: Records | None = None,
) -> dict[int, Verdict]:
    """Judges what the plan of each partition has read and written; ``taken`` are what it took its fingerprint of."""
    inputs = [record for partition, (read, _) in sides.items() for record in of(partition, read)]
    outputs = [record for partition, (_, written) in sides.items() for record in of(partition, written)]
    verdicts = judge_all(
        table(inputs),
        table(outputs),
        [claim(partition, like) for partition in sides],
        reports,
        fingerprints=None if taken is None else [fingerprint_of(of(number, taken[number])) for number in sides],
        left=None if left is None else table(left),
    )
    return {partition: verdicts[f"plan-{partition}"] for partition in sides}


def right(*partitions: int) -> dict[int, Records]:
    """Fingerprints that a correct cleaning of the plans of ``partitions`` takes."""
    return dict.fromkeys(partitions, OUTPUTS)


@pytest.mark.parametrize("by_fingerprint", [False, True], ids=["values", "fingerprint"])
def test_many_plans_that_are_right_pass(tmp_path: Path, by_fingerprint: bool) -> None:
    taken = right(1, 2, 3) if by_fingerprint else None
    verdicts = judge_plans(tmp_path, dict.fromkeys((1, 2, 3), (INPUTS, OUTPUTS)), taken=taken)
    assert [failed(verdict) for verdict in verdicts.values()] == [{}, {}, {}]
    assert {verdict.closely for verdict in verdicts.values()} == {not by_fingerprint}
    build_pages(tmp_path)
    assert len(list((tmp_path / "plans").iterdir())) == 3, "a page for each plan"


@pytest.mark.parametrize("by_fingerprint", [False, True], ids=["values", "fingerprint"])
def test_merges_are_copies_each(tmp_path: Path, by_fingerprint: bool) -> None:
    """C13, for many plans: one record lost, twice or changed fails its own plan."""
    copy = [replace(record, level=1) for record in INPUTS]
    sides = {
        1: (INPUTS, copy),
        2: (INPUTS, [*copy[1:], copy[2]]),
        3: (INPUTS, [replace(record, value=b"w") if record.offset == B.offset else record for record in copy]),
        4: (INPUTS, [replace(record, delete_horizon=None) for record in copy]),
    }
    verdicts = judge_plans(tmp_path, sides, MERGE, dict.fromkeys(sides, copy) if by_fingerprint else None)
    assert [verdict.passed for verdict in verdicts.values()] == [True, False, False, False]
    assert all(set(failed(verdicts[number])) == {"expect_same_records"} for number in (2, 3, 4))


@pytest.fixture(scope="module", params=["values", "fingerprint"])
def one_each(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    """Every sabotage in a plan of its own, and a plan that is right, all judged at once."""
    by_fingerprint = request.param == "fingerprint"
    # Fingerprints that agree with what was written: then the sums alone have to tell.
    cases = {name: case[0] for name, case in SABOTAGE.items() if not (by_fingerprint and name in OTHER_BITS)}
    cases = {name: records for name, records in cases.items() if name != "record of another partition"}
    cases["right"] = OUTPUTS
    sides = {partition: (INPUTS, records) for partition, records in enumerate(cases.values())}
    written = {partition: records for partition, (_, records) in sides.items()}
    verdicts = judge_plans(tmp_path_factory.mktemp("each"), sides, taken=written if by_fingerprint else None)
    return {name: verdicts[partition] for partition, name in enumerate(cases)}


def test_each_plan_answers_for_itself(one_each: dict[str, Verdict]) -> None:
    assert one_each.pop("right").passed
    assert one_each
    silent = [name for name, verdict in one_each.items() if offender(name) not in offending(verdict, name)]
    assert silent == []


def test_c1_a_fingerprint_finds_what_was_changed_and_in_which_plan(tmp_path: Path) -> None:
    changed = [name for name in SABOTAGE if name in OTHER_BITS]
    sides = {number: (INPUTS, SABOTAGE[name][0]) for number, name in enumerate(changed)} | {99: (INPUTS, OUTPUTS)}
    verdicts = judge_plans(tmp_path, sides, taken=right(*sides))
    assert verdicts.pop(99).passed
    for number, name in enumerate(changed):
        assert offender(name) in offending(verdicts[number], name), name


def test_with_a_fingerprint_no_value_of_the_inputs_is_read(tmp_path: Path) -> None:
    """They could be anything: what was written is what the cleaner has read."""
    anything = [replace(record, value=b"never looked at") for record in INPUTS]
    assert judge_plans(tmp_path, {1: (anything, OUTPUTS)}, taken=right(1))[1].passed
    assert not judge_plans(tmp_path, {1: (anything, OUTPUTS)})[1].passed


def test_a_cleaner_that_read_something_else_is_not_believed(tmp_path: Path) -> None:
    sides = dict.fromkeys((1, 2), (INPUTS, OUTPUTS))
    verdicts = judge_plans(tmp_path, sides, taken={1: [*OUTPUTS, B], 2: OUTPUTS})
    assert "fingerprint differs from that" in failed(verdicts[1])["expect_records_unchanged"].observed
    assert verdicts[2].passed


def test_a_record_that_no_plan_is_about_fails_them_all(tmp_path: Path) -> None:
    stray = table([*of(1, OUTPUTS), *of(2, OUTPUTS), *of(9, [B])])
    inputs = table([*of(1, INPUTS), *of(2, INPUTS)])
    verdicts = judge_all(inputs, stray, [claim(1), claim(2)], tmp_path)
    for verdict in verdicts.values():
        found = failed(verdict)
        assert set(found) == {"expect_one_topic_partition"}
        assert [(sample.offset, sample.key) for sample in found["expect_one_topic_partition"].samples] == [(1, "b")]


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (replace(claim(2), lane="full", level_out=3), "of the same table, lane and level"),
        (replace(claim(2), plan_id="plan-1"), "claims with the same plan"),
        (replace(claim(1), plan_id="plan-2"), "claims with the same topic partition"),
    ],
)
def test_claims_that_do_not_belong_together_are_refused(second: Claim, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        judge_all(table(INPUTS), table(OUTPUTS), [claim(1), second], tmp_path)


FULL = replace(CLAIM, lane="full", level_out=3, segments_in_place=2, bytes_in_place=1_000_000, records_in_place=3)
TAIL_OUTPUTS = [replace(record, level=3) if record.level == 2 else record for record in OUTPUTS]
LEFT = [Record(-3, b"tail-1", level=3), Record(-2, b"tail-2", None, level=3, delete_horizon=LATER)]
"""The records of segments that stay where they are; the offsets do not matter."""


def judge_left(reports: Path, left: Records) -> Verdict:
    """Judges a full clean of partition 1 that has left the records ``left`` in place, beside one that left nothing."""
    sides = dict.fromkeys((1, 2), (INPUTS, TAIL_OUTPUTS))
    verdicts = judge_plans(reports, sides, FULL, left=of(1, left))
    assert verdicts[2].passed
    return verdicts[1]


def test_c16_segments_that_lose_nothing_stay_in_place(tmp_path: Path) -> None:
    verdict = judge_left(tmp_path, LEFT)
    assert failed(verdict) == {}
    build_pages(tmp_path)
    assert "Left in place" in (tmp_path / "plans" / f"{verdict.run_name}.html").read_text(encoding="utf-8")


def test_c2_c16_a_superseded_record_left_behind_is_found(tmp_path: Path) -> None:
    found = failed(judge_left(tmp_path, [*LEFT, Record(-1, b"b", level=3)]))
    assert set(found) == {"expect_one_record_per_key"}
    finding = found["expect_one_record_per_key"]
    assert finding.observed == "1 record is in a segment left in place although a newer record supersedes it."
    assert [(sample.offset, sample.key) for sample in finding.samples] == [(-1, "b")]


def test_c9_c16_a_removed_tombstone_supersedes_nothing_that_was_left_in_place(tmp_path: Path) -> None:
    removed = Record(-9, b"tail-1", None, level=-2, delete_horizon=PAST)
    sides = {1: ([*INPUTS, removed], TAIL_OUTPUTS)}
    assert failed(judge_plans(tmp_path, sides, FULL, left=of(1, LEFT))[1]) == {}


@pytest.mark.parametrize(
    ("horizon", "facts", "broken"),
    [
        pytest.param(None, {}, True, id="unstamped"),
        pytest.param(PAST, {}, True, id="past its horizon"),
        pytest.param(LATER, {}, False, id="waits"),
        pytest.param(None, {"clean_below": -9}, False, id="unstamped and not clean"),
        pytest.param(PAST, {"clean_below": -9}, False, id="past its horizon and not clean"),
        pytest.param(PAST, {"kept_from": -4}, True, id="past its horizon below what may be the log end"),
        pytest.param(PAST, {"kept_from": -5}, False, id="may be the log end (C4)"),
    ],
)
def test_c8_c9_a_tombstone_that_was_due_may_not_be_left_behind(
    horizon: datetime | None, facts: dict[str, Any], broken: bool, tmp_path: Path
) -> None:
    tombstone = replace(Record(-5, b"gone", None, level=3), delete_horizon=horizon)
    one, left = (table(of(1, [B])), table(of(1, [replace(B, level=3)]))), table(of(1, [tombstone]))
    like = replace(FULL, records_in=1, records_out=1, superseded=0, tombstones_removed=0, quarantined=0, **facts)
    verdict = judge_all(*one, [claim(1, like)], tmp_path, left=left, samples="full")["plan-1"]
    found = failed(verdict)
    assert set(found) == ({"expect_tombstones_gone"} if broken else set())
    if broken:
        assert [(s.offset, s.key) for s in found["expect_tombstones_gone"].samples] == [(-5, "gone")]


def test_a_null_key_at_the_log_end_stays_and_any_other_goes(tmp_path: Path) -> None:
    """C4 before C5, by sums alone."""
    end, earlier = Record(20, None), Record(9, None)
    inputs, like = [B, earlier, end], replace(CLAIM, records_in=3, superseded=0, tombstones_removed=0)
    like = replace(like, records_out=2, quarantined=1)
    right_one = [replace(B, level=2), replace(earlier, level=-1), replace(end, level=2)]
    kept_earlier = [replace(B, level=2), replace(earlier, level=2), replace(end, level=-1)]
    verdicts = judge_plans(tmp_path, {1: (inputs, right_one), 2: (inputs, kept_earlier)}, like)
    assert verdicts[1].passed
    assert set(failed(verdicts[2])) == {"expect_no_null_keys", "expect_log_end_kept"}


def test_nothing_is_said_of_other_plans_when_one_needs_a_closer_look(tmp_path: Path) -> None:
    """An offset that was written twice is compared record by record; the other plan's figures stay as summed up."""
    repeats = replace(claim(2), records_in=15, superseded=4, repeated=1)
    inputs = table([*of(1, INPUTS), *of(2, [*INPUTS, B])])
    verdicts = judge_all(
        inputs, table([*of(1, OUTPUTS), *of(2, OUTPUTS)]), [claim(1), repeats], tmp_path, samples="full"
    )
    assert [failed(verdict) for verdict in verdicts.values()] == [{}, {}]
    observed = {f.name: f.observed for f in verdicts["plan-2"].expectations}
    assert (
        observed[RECORD_COUNTS]
        == "0 of 15 records; 15 read = 9 kept + 4 superseded + 1 tombstone removed + 1 quarantined."
    )


def test_samples_are_taken_of_each_failed_plan(tmp_path: Path) -> None:
    sides = {1: (INPUTS, without(B)), 2: (INPUTS, OUTPUTS), 3: (INPUTS, instead(EMPTY_KEY, value=b"w"))}
    verdicts = judge_plans(tmp_path, sides)
    assert [s.offset for s in failed(verdicts[1])["expect_newest_record_kept"].samples] == [B.offset]
    assert verdicts[2].passed
    assert [s.offset for s in failed(verdicts[3])["expect_records_unchanged"].samples] == [EMPTY_KEY.offset]
