"""C27: every way in which lane `convert` could go wrong is found by the judge: a record too many, one too few."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from firnlake_expectations.claim import Claim
from firnlake_expectations.findings import rows
from firnlake_expectations.judge import judge
from firnlake_expectations.tables import SHOWN
from firnlake_expectations.visible import Deletes, Listed
from tests.support.judged import CLAIM, KAFKAS, PAST, RECORD_COUNTS, SCHEMA, Record, part, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from firnlake_expectations.tables import Part

HELD = [
    Record(0, b"a", level=None),
    Record(1, b"b", level=3),
    Record(2, None, level=None),
    Record(3, b"a", None, level=3, delete_horizon=PAST),
    Record(3, b"a", None, level=3, delete_horizon=PAST),
    Record(4, b"c", level=1),
]
"""Records of one data file, one of them twice; `b` is hidden by value, and the first by position."""
FILE = "data/one.parquet"
CONVERT = replace(
    CLAIM,
    lane="convert",
    level_out=0,
    log_end_offset=4,
    segments_in=0,
    segments_out=0,
    bytes_in=0,
    records_in=4,
    records_out=4,
    superseded=0,
    tombstones_removed=0,
    quarantined=0,
    deleted=2,
    segments_in_place=1,
)


def by_value(*keys: bytes) -> Deletes:
    def read() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"key": pa.array(keys, pa.large_binary())})

    return Deletes("equality", 2, "place", None, ("key",), read)


def by_place(name: str, *places: int, number: int = 2) -> Deletes:
    def read() -> Iterator[pa.RecordBatch]:
        rows = {"file_path": pa.array([FILE] * len(places), pa.large_string()), "pos": pa.array(places, pa.int64())}
        yield pa.RecordBatch.from_pydict(rows)

    return Deletes(name, number, "place", None, (), read)


def sides(after: Sequence[Deletes], before: Sequence[Deletes] | None = None) -> list[Part]:
    """The data file with the deletes before, and after."""
    known = [by_value(b"b", b"x"), by_place("old", 0)] if before is None else before
    listed, later = (Listed(1, "place", tuple(own)) for own in (known, after))
    held = part(SHOWN, table(HELD))
    return [replace(held, name=FILE, records=len(HELD), plan=0, listed=listed, after=later)]


def broken(parts: list[Part], claim: Claim = CONVERT) -> dict[str, int]:
    (findings,) = judge(parts, SCHEMA, [claim], KAFKAS, fingerprints=[0], samples="full")
    (closely,) = judge(parts, SCHEMA, [claim], KAFKAS, samples="full")
    assert closely.broken == findings.broken, "values are the same files'"
    assert findings.figures["deleted"] == 2
    return dict(findings.broken)


@pytest.mark.parametrize(
    "after",
    [
        [by_place("old", 0), by_place("new", 1)],
        [by_place("merged", 0, 1)],
        [by_place("old", 0), by_place("new", 0, 1)],
        [by_place("old", 0), by_value(b"b", b"x")],
    ],
)
def test_c27_the_same_is_visible(after: list[Deletes]) -> None:
    assert broken(sides(after)) == {}


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([by_place("old", 0)], {"visible_again": 1}),
        ([by_place("new", 1)], {"visible_again": 1}),
        ([], {"visible_again": 2}),
        ([by_place("old", 0), by_place("new", 2)], {"visible_again": 1, "no_longer_visible": 1}),
        ([by_place("old", 0), by_place("new", 1, 3)], {"no_longer_visible": 1}),
        ([by_place("old", 0), by_place("new", 1, 3, 4)], {"no_longer_visible": 2}),
        ([by_place("old", 0), by_place("new", 1, 2)], {"no_longer_visible": 1}),
        ([by_place("old", 0), by_place("new", 1, 5)], {"no_longer_visible": 1}),
        ([by_place("old", 0), by_place("new", 1, number=0)], {"visible_again": 1}),
    ],
)
def test_c27_a_record_more_or_less_is_noticed(after: list[Deletes], expected: dict[str, int]) -> None:
    """The last one is older than the data file, and does not apply to it."""
    assert broken(sides(after)) == expected


@pytest.mark.parametrize("name", ["records_in", "records_out", "deleted", "superseded"])
def test_c24_wrong_counts_are_noticed(name: str) -> None:
    parts = sides([by_place("old", 0), by_place("new", 1)])
    (findings,) = judge(parts, SCHEMA, [CONVERT], KAFKAS, fingerprints=[0])
    assert [row.promise.name for row in rows(CONVERT, findings) if row.broken] == []
    wrong = Claim.from_dict(CONVERT.to_dict() | {name: 5})
    assert [row.promise.name for row in rows(wrong, findings) if row.broken] == [RECORD_COUNTS]
