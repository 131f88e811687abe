"""Transactions are judged by what the records say of them (C10): right results, and wrong ones."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from firnlake_expectations.claim import Claim, Verdict
from firnlake_expectations.fingerprint import Fingerprint
from tests.support.judged import CLAIM as CLEANING
from tests.support.judged import KAFKAS, NOW, PAST, RECORD_COUNTS, STAMP, judge_all
from tests.support.judged import SCHEMA as RECORDS

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = pa.schema(
    [
        *(field for field in RECORDS if field.name not in ("timestampType", "headers")),
        ("is_control", pa.bool_()),
        ("is_transactional", pa.bool_()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
    ]
)


@dataclass(frozen=True)
class Record:
    offset: int
    key: bytes | None
    value: bytes | None = b"v"
    producer: int | None = None
    control: bool | None = None
    level: int | None = 1
    horizon: datetime | None = None
    epoch: int = 0

    def row(self) -> tuple[Any, ...]:
        """In the order of the schema."""
        inside = None if self.producer is None else True
        return (
            *(self.key, self.value, "orders", 3, self.offset, NOW - timedelta(days=1), self.level, self.horizon),
            *(self.control, inside, self.producer, self.epoch),
        )


def end(offset: int, producer: int, *, commit: bool, **state: Any) -> Record:
    return Record(offset, struct.pack(">hh", 0, int(commit)), b"\0" * 6, producer, control=True, **state)


COMMITTED, OLD = Record(0, b"a", b"1", 1), Record(1, b"b", b"1")
ABORTED, ABORTED_DELETE, ABORTED_NO_KEY = Record(2, b"b", b"2", 2), Record(3, b"a", None, 2), Record(4, None, b"3", 2)
COMMIT, ABORT = end(5, 1, commit=True), end(6, 2, commit=False)
STAMPED, FIRST_SEEN = end(7, 3, commit=False, level=2, horizon=PAST), end(8, 3, commit=True)
ENDS_OUTSIDE = Record(9, b"c", b"1", 4)
KEPT_BEFORE = Record(10, b"d", b"1", 5, level=2)
LEADER = Record(11, struct.pack(">hh", 0, 2), b"", None, control=True)
INPUTS = [
    *(COMMITTED, OLD, ABORTED, ABORTED_DELETE, ABORTED_NO_KEY, COMMIT, ABORT, STAMPED, FIRST_SEEN, ENDS_OUTSIDE),
    *(KEPT_BEFORE, LEADER),
]
KEPT = [COMMITTED, OLD, COMMIT, ABORT, KEPT_BEFORE, LEADER]
OUTPUTS = [*(replace(one, level=2) for one in KEPT), replace(FIRST_SEEN, level=2, horizon=STAMP)]
CLAIM = replace(
    CLEANING,
    segments_in=2,
    segments_out=1,
    bytes_in=1000,
    bytes_out=500,
    records_in=12,
    records_out=7,
    superseded=0,
    tombstones_removed=0,
    quarantined=0,
    transactional=True,
    markers=((4, 15, False), (1, 16, False)),
    aborted=4,
    markers_removed=1,
)
Judge = Callable[[list[Record], list[Record], Claim], Verdict]


def table(records: list[Record]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, one.row(), strict=True)) for one in records], SCHEMA)


@pytest.fixture(params=["values", "fingerprint"])
def judged(request: pytest.FixtureRequest, tmp_path: Path) -> Judge:
    def run(inputs: list[Record], outputs: list[Record], claim: Claim) -> Verdict:
        written = table(outputs)
        # A fingerprint that agrees with what was written: what is wrong has to be found without it.
        taken = [Fingerprint(KAFKAS.kept(SCHEMA.names)).of(written)] if request.param == "fingerprint" else None
        return judge_all(table(inputs), written, [claim], tmp_path, fingerprints=taken)[claim.plan_id]

    return run


def failed(verdict: Verdict) -> dict[str, str]:
    return {finding.name: finding.observed for finding in verdict.failures}


def without(*gone: Record) -> list[Record]:
    offsets = {one.offset for one in gone}
    return [one for one in OUTPUTS if one.offset not in offsets]


def instead(record: Record, **changes: Any) -> list[Record]:
    return [replace(one, **changes) if one.offset == record.offset else one for one in OUTPUTS]


def test_c10_a_correct_cleaning_passes(judged: Judge) -> None:
    verdict = judged(INPUTS, OUTPUTS, CLAIM)
    assert failed(verdict) == {}
    observed = {finding.name: finding.observed for finding in verdict.expectations}
    assert observed[RECORD_COUNTS].endswith(" + 4 of aborted transactions + 1 marker removed.")


# what was done to the stage: what it holds then, and what is said by which promises
SABOTAGE: dict[str, tuple[list[Record], dict[str, str]]] = {
    "an aborted record kept, a committed one and a marker dropped, a marker kept past its horizon": (
        [*without(COMMITTED, ABORT), replace(ABORTED, level=2), STAMPED],
        {
            "expect_aborted_records_gone": "1 record of an aborted transaction remains.",
            "expect_newest_record_kept": "1 key has lost its newest record.",
            "expect_markers_kept": (
                "1 control record was removed too early; 1 marker remains past its delete horizon."
            ),
        },
    ),
    "an aborted record quarantined, a marker stamped too early, an epoch lost": (
        [
            *(
                replace(one, epoch=1) if one.offset == COMMITTED.offset else one
                for one in instead(ABORT, horizon=STAMP)
            ),
            replace(ABORTED_NO_KEY, level=-1),
        ],
        {
            "expect_aborted_records_gone": "1 record of an aborted transaction remains.",
            "expect_delete_horizons": "1 record has a wrong delete horizon.",
            "expect_records_unchanged": "1 record differs from what was read at its offset.",
        },
    ),
    "aborted records superseded, what an earlier cleaning kept dropped, a marker not stamped": (
        [one for one in instead(FIRST_SEEN, horizon=None) if one.offset not in (OLD.offset, KEPT_BEFORE.offset)],
        {
            "expect_newest_record_kept": "2 keys have lost their newest record.",
            "expect_delete_horizons": "1 record has a wrong delete horizon.",
        },
    ),
    "a marker dropped unstamped, a control record that is no marker dropped": (
        without(FIRST_SEEN, LEADER),
        {"expect_markers_kept": "2 control records were removed too early."},
    ),
}


@pytest.mark.parametrize("case", SABOTAGE)
def test_c10_broken_promises_are_named(case: str, judged: Judge) -> None:
    outputs, expected = SABOTAGE[case]
    found = failed(judged(INPUTS, outputs, CLAIM))
    assert {name: said for name, said in found.items() if name != RECORD_COUNTS} == expected


def test_c10_a_transaction_that_nobody_ended_is_found(judged: Judge) -> None:
    found = failed(judged(INPUTS, OUTPUTS, replace(CLAIM, markers=())))
    assert "1 record is part of a transaction that has not ended" in found["expect_aborted_records_gone"]


def test_c10_a_plan_that_does_not_tell_of_transactions_is_found_out(judged: Judge) -> None:
    found = failed(judged(INPUTS, OUTPUTS, replace(CLAIM, transactional=False)))
    assert "their plan says that no record is" in found["expect_aborted_records_gone"]


def test_c10_nor_does_it_pass_where_every_transaction_was_committed_and_the_sums_agree(judged: Judge) -> None:
    inputs = [COMMITTED, OLD]
    claim = replace(CLAIM, records_in=2, records_out=2, transactional=False, markers=(), aborted=0, markers_removed=0)
    found = failed(judged(inputs, [replace(one, level=2) for one in inputs], claim))
    assert found == {"expect_aborted_records_gone": "1 record is transactional, but its plan says that no record is."}


def test_c10_what_is_said_of_aborted_records_is_counted(judged: Judge) -> None:
    found = failed(judged(INPUTS, OUTPUTS, replace(CLAIM, aborted=3, superseded=1)))
    assert set(found) == {RECORD_COUNTS}
