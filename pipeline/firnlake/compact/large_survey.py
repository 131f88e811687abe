"""The survey of a large plan: one SQL statement finds the newest record of every key, with an engine that spills.

The statement sees keys, offsets and places of records, and never a value. Duplicate offsets and transactions are
resolved before, because both need records of different keys together.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from firnlake.compact.inputs import PlanInputs, without
from firnlake.compact.keys import M, Survey, marks_before_keys
from firnlake.compact.marks import Marks
from firnlake.errors import UnavailableError
from firnlake.iceberg.branches import REMOVED
from firnlake.iceberg.keys import Flags, Longs, bytes_of
from firnlake.job.job import staying
from firnlake.job.plan import Plan
from firnlake.table.segment import Segment
from firnlake_expectations.temporary import temporary_folder

MEMORY_BYTES: Final = 512 << 20
"""Memory limit of the engine; it spills data beyond this limit to disk."""

_SCHEMA: Final = pa.schema(
    [("key", pa.large_binary()), ("log_offset", pa.int64()), ("place", pa.int64()), ("removed", pa.bool_())]
)
NEWEST: Final = """
    SELECT arg_max(place, rank) AS place, coalesce(min(rank) FILTER (NOT removed) < max(rank), false) AS has_older
    FROM (SELECT *, 2 * log_offset::HUGEINT + (NOT removed)::INTEGER AS rank FROM keys WHERE key IS NOT NULL)
    GROUP BY key HAVING NOT bool_and(removed)
"""
"""The newest record of each key. A removed tombstone is older than a record at its offset; it is the newest only if its
key has records, and all of these are older (C9)."""
_ROWS: Final = 1 << 15
"""Newest records that are flagged at a time."""


def large_survey(inputs: PlanInputs) -> Survey[Marks]:
    """Survey ``inputs`` with their keys on disk. Raises what ``survey`` does, and UnavailableError for a full disk."""
    before = before_keys(inputs)
    ends = np.cumsum([mark.records for mark in before]).tolist()
    newest, has_older = np.zeros((2, ends[-1]), dtype=np.bool_)
    for batch in _newest(inputs, _keys(inputs, before)):
        flag(newest, has_older, batch)
    marks: dict[str, Marks] = {}
    for segment, mark, end in zip(inputs.segments, before, ends, strict=True):
        of = slice(end - mark.records, end)
        marks[segment.path] = replace(mark, newest=newest[of], has_older=has_older[of])
    kept = {path: mark.newest_count for path, mark in marks.items()}
    return survey_of(inputs.plan, marks, kept, {path: mark.records for path, mark in marks.items()})


def flag(newest: Flags, has_older: Flags, rows: pa.RecordBatch) -> None:
    """Set the flags of the newest records in ``rows``."""
    places = rows["place"].to_numpy()
    newest[places] = True
    has_older[places] = rows["has_older"].to_numpy(zero_copy_only=False)


def survey_of(plan: Plan, marks: Mapping[str, M], kept: Mapping[str, int], records: Mapping[str, int]) -> Survey[M]:
    """The survey with all ``marks`` of a plan, of whose ``records`` some are ``kept``; all three are by path."""
    touched = {path for path, number in kept.items() if number < records[path]}
    in_place = staying(plan, touched) if plan.tail_is_older else frozenset[str]()
    return Survey({path: own for path, own in marks.items() if path not in in_place}, in_place, kept)


def before_keys(inputs: PlanInputs) -> list[Marks]:
    """Marks that need no key comparison, by groups of segments that may share offsets; of all if transactional."""
    marks = [Marks(0)] * len(inputs.segments)
    for group in [list(range(len(inputs.segments)))] if inputs.plan.transactional else overlapping(inputs):
        segments = [inputs.segments[number] for number in group]
        narrow = [inputs.narrow(segment, with_keys=False) for segment in segments]
        for number, mark in zip(group, marks_before_keys(inputs, segments, narrow), strict=True):
            marks[number] = mark
    return marks


def overlapping(inputs: PlanInputs) -> list[list[int]]:
    """The plan's segments in groups that share no offsets with each other; removed tombstones form a separate group."""
    groups: list[list[int]] = []
    end = -1
    removed = [number for number, segment in enumerate(inputs.segments) if segment.level == REMOVED]
    for number, segment in enumerate(inputs.segments):
        if segment.level == REMOVED:
            continue
        if not groups or segment.base_offset > end:
            groups.append([])
        groups[-1].append(number)
        end = max(end, segment.last_offset)
    return [*groups, removed] if removed else groups


@dataclass(frozen=True)
class Keys:
    """The keys of consecutive records of a segment as bytes, NULL if not compared (C1, C5, C10), and their offsets.

    ``start`` is the place of the first record in its segment.
    """

    start: int
    keys: pa.Array
    offsets: Longs


def keys_of_segment(inputs: PlanInputs, segment: Segment, before: Marks) -> Iterator[Keys]:
    """The keys of all records of ``segment``, whose marks ``before`` tell which are excluded."""
    start, excluded = 0, before.excluded
    for narrow in inputs.narrow_batches(segment):
        keys, end = bytes_of(narrow.keys[0]), start + len(narrow.offsets)
        yield Keys(start, keys if excluded is None else without(keys, pa.array(excluded[start:end])), narrow.offsets)
        start = end


def _keys(inputs: PlanInputs, before: Sequence[Marks]) -> Iterator[pa.RecordBatch]:
    """The keys, offsets and places of all records."""
    first = 0
    for segment, mark in zip(inputs.segments, before, strict=True):
        for own in keys_of_segment(inputs, segment, mark):
            places = np.arange(first + own.start, first + own.start + len(own.offsets))
            removed = pa.repeat(pa.scalar(segment.level == REMOVED), len(places))
            yield pa.RecordBatch.from_arrays([own.keys, own.offsets, places, removed], schema=_SCHEMA)
        first += mark.records


def _newest(inputs: PlanInputs, keys: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of NEWEST, from DuckDB, which spills to disk, and sees no other files and no hosts."""
    import duckdb

    failed: list[Exception] = []
    with temporary_folder() as spilled:
        config: dict[str, Any] = {
            "enable_external_access": "false",
            "preserve_insertion_order": "false",
            "arrow_large_buffer_size": "true",
            "memory_limit": f"{MEMORY_BYTES}B",
            "threads": str(inputs.threads),
            "temp_directory": spilled,
        }
        with duckdb.connect(":memory:", config=config) as engine:
            engine.register("keys", pa.RecordBatchReader.from_batches(_SCHEMA, _watched(keys, failed)))
            try:
                yield from engine.sql(NEWEST).to_arrow_reader(_ROWS)
            except duckdb.Error as error:
                raise failed[0] if failed else _failure(inputs, error) from error


def _watched(keys: Iterator[pa.RecordBatch], failed: list[Exception]) -> Iterator[pa.RecordBatch]:
    """``keys``. An error of reading goes to ``failed``, because the engine would tell it in words of its own."""
    try:
        yield from keys
    except Exception as error:
        failed.append(error)
        raise


def _failure(inputs: PlanInputs, error: Exception) -> UnavailableError:
    reason = " ".join(str(error).split())
    return UnavailableError(
        f"table {inputs.plan.table} ({inputs.plan.title}): its keys can't be compared in {tempfile.gettempdir()} now: "
        f"{reason}; try again later"
    )
