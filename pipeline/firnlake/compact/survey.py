"""The survey of a plan: finds the newest record of each key (C2, C9) from narrow columns, before any value is read.

Keys are compared as arrays. If they are too many for the memory of a task, DuckDB compares them, which spills to disk
(``on_disk``); if they are too many for a task, Spark SQL does (``spark_survey``). Duplicate offsets and transactions
come first, because both need records of different keys together.
"""

import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.utils.bin_packing import PackingIterator

from firnlake.compact import transactions
from firnlake.compact.duplicates import repeated
from firnlake.compact.inputs import PlanInputs
from firnlake.compact.marks import Marks, StoredMarks
from firnlake.errors import UnavailableError
from firnlake.iceberg.branches import REMOVED
from firnlake.iceberg.keys import NO_KEY, Flags, Longs, bytes_of, codes_of, keys_of, places_in
from firnlake.job.plan import Plan, staying
from firnlake.table.segment import Segment
from firnlake_expectations.temporary import temporary_folder

KEY_BYTES: Final = 512 << 20
"""Maximum bytes of keys, with the data kept beside them, that a survey compares as arrays (approximate). Keys count as
half of their files: with more of them, DuckDB takes hardly longer."""
_BESIDE: Final = 64
"""Bytes kept per key: its code, its offset, its place, and its part of the hash table."""
MEMORY_BYTES: Final = 512 << 20
"""Memory limit of DuckDB; it spills data beyond this limit to disk."""
READERS: Final = 4
"""Number of files read at the same time; several, because on object stores latency dominates."""
LOOKED_UP: Final = 1 << 21
"""Approximate number of the tail's keys per lookup; large, because each lookup hashes the keys of the head again."""
_SORTED: Final = 100_000
"""Maximum number of keys of the head that are looked up in the bounds of the tail's segments."""


M = TypeVar("M", bound=Marks | StoredMarks)
"""Where the marks are: in memory, or in a file."""


@dataclass(frozen=True)
class Survey(Generic[M]):
    """Result of comparing a plan's keys: the marks of the segments to rewrite, by path, and the segments that stay."""

    marks: Mapping[str, M]
    in_place: frozenset[str]

    @classmethod
    def of(cls, plan: Plan, marks: Mapping[str, M]) -> "Survey[M]":
        """The survey of ``plan`` with the ``marks`` of all its segments."""
        touched = {path for path, own in marks.items() if own.newest_count < own.records}
        in_place = staying(plan, touched) if plan.older else frozenset[str]()
        return cls({path: own for path, own in marks.items() if path not in in_place}, in_place)


def has_many_keys(inputs: PlanInputs) -> bool:
    """True if the keys to compare are more than a task should hold in memory."""
    compared, _ = _head_and_tail(inputs)
    return sum(one.records * _BESIDE + one.bytes // 2 for one in compared) > KEY_BYTES


def survey(inputs: PlanInputs) -> Survey[Marks]:
    """Compare the keys of ``inputs`` in this process. Raises RefusedError for records that contradict each other."""
    return on_disk(inputs) if has_many_keys(inputs) else in_memory(inputs)


def in_memory(inputs: PlanInputs) -> Survey[Marks]:
    """Compare the keys of ``inputs`` as arrays. A tail whose records are all older is only searched for the head's
    keys, so memory does not grow with it."""
    head, tail = _head_and_tail(inputs)
    records, every, sizes = _read(inputs, head, keys=True)
    codes, known = codes_of(_compared(records["key"], every))
    removed = np.repeat(np.array([one.level == REMOVED for one in head], dtype=np.bool_), sizes)
    newest, has_older = latest_per_key(codes, records["offset"].to_numpy(), removed)
    in_tail = np.zeros(len(known) + 1, dtype=np.bool_)  # the last flag is that of NO_KEY
    marks = {one.path: Marks.of(inputs.visible(one)) for one in tail}
    for group in PackingIterator(
        _meeting(inputs, known, tail), LOOKED_UP, lookback=1, weight_func=lambda one: one.records
    ):
        marks |= _looked_up(inputs, group, known, in_tail)
    parts = every.having(newest=newest, has_older=has_older | in_tail[codes]).split(sizes)
    return Survey.of(inputs.plan, marks | dict(zip((one.path for one in head), parts, strict=True)))


def _head_and_tail(inputs: PlanInputs) -> tuple[list[Segment], list[Segment]]:
    """The segments whose keys are compared with each other, and those of a tail whose records are all older."""
    older = inputs.plan.older  # sorts all segments
    segments = inputs.segments
    return [one for one in segments if one.path not in older], [one for one in segments if one.path in older]


def latest_per_key(codes: Longs, offsets: Longs, removed_before: Flags | None = None) -> tuple[Flags, Flags]:
    """Two flags per record: whether it is the newest of its key, and whether an older record of its key is present.

    ``codes`` identify keys and must be dense, because memory grows with the largest code. ``removed_before`` marks
    tombstones that an earlier cleaning removed (C9). Such a tombstone never counts as an older record, and is the
    newest of its key only if the key has present records and all of these are older. Present records of a key have
    different offsets. Records without a key, control records, and records of aborted transactions are not compared:
    they have the code NO_KEY, and both their flags are false.
    """
    compared = codes != NO_KEY
    removed = np.zeros(len(codes), dtype=np.bool_) if removed_before is None else removed_before
    # Sorting is stable, so a removed tombstone comes before a present record at the same offset, which is the newer.
    part = np.concatenate((np.flatnonzero(compared & removed), np.flatnonzero(compared & ~removed)))
    order = part[np.argsort(offsets[part], kind="stable")]
    keys, is_removed, places = codes[order], removed[order], np.arange(len(order))
    last, first = np.zeros((2, int(codes.max(initial=NO_KEY)) + 1), dtype=np.intp)
    # Of several values for one place, an assignment keeps the last (NumPy, "Indexing on ndarrays").
    last[keys] = places
    first[keys] = len(order)
    present = np.flatnonzero(~is_removed)[::-1]
    first[keys[present]] = present
    newest, has_older = np.zeros((2, len(codes)), dtype=np.bool_)
    has_older[order] = first[keys] < places
    # A removed tombstone must be newer than a present record, and thus than all of them.
    newest[order] = (last[keys] == places) & (~is_removed | has_older[order])
    return newest, has_older


def _meeting(inputs: PlanInputs, known: pa.Array, tail: Sequence[Segment]) -> list[Segment]:
    """The segments of the ``tail`` that may hold one of the keys ``known``, by the bounds of their keys."""
    if len(known) > _SORTED:
        return list(tail)
    keys = sorted(known.to_pylist())

    def may_hold(segment: Segment) -> bool:
        if segment.path not in inputs.key_bounds:
            return bool(keys)
        lowest, highest = inputs.key_bounds[segment.path]
        at = bisect_left(keys, lowest)
        return at < len(keys) and bool(keys[at] <= highest)

    return [one for one in tail if may_hold(one)]


def _looked_up(
    inputs: PlanInputs, tail: Sequence[Segment], known: pa.Array, superseded: Flags
) -> Iterator[tuple[str, Marks]]:
    """The marks of segments of the tail by path, where ``known`` are the keys of the head; sets the flags of those of
    them that are ``superseded`` in the tail."""

    def keys(segment: Segment) -> list[pa.Array]:
        return [keys_of(batch, inputs.columns.key) for _, batch in inputs.batches(segment, inputs.columns.key)]

    with ThreadPoolExecutor(READERS) as readers:
        parts = list(readers.map(keys, tail))
    places = places_in(pa.chunked_array([key for part in parts for key in part], known.type), known)
    superseded[places] = True
    superseded[NO_KEY] = False
    ends = np.cumsum([sum(map(len, part)) for part in parts])
    for segment, found in zip(tail, np.split(places == NO_KEY, ends[:-1]), strict=True):
        yield segment.path, Marks.of(len(found), newest=found)


def _read(inputs: PlanInputs, segments: Sequence[Segment], *, keys: bool) -> tuple[pa.Table, Marks, list[int]]:
    """The narrow columns of all records of ``segments``, their marks that need no comparison of keys, and how many
    records each segment has.

    The columns are ``offset``, ``key`` if ``keys``, and those of ``transactions.SCHEMA`` if the plan is transactional.
    """
    columns, transactional = inputs.columns, inputs.plan.transactional
    names = [columns.offset, *(columns.key if keys else ()), *(transactions.COLUMNS if transactional else ())]
    schema = pa.schema([("offset", pa.int64()), *([("key", _key_type(inputs))] if keys else [])])
    schema = pa.unify_schemas([schema, *([transactions.SCHEMA] if transactional else [])])

    def narrow(segment: Segment) -> pa.Table:
        batches = []
        for _, batch in inputs.batches(segment, list(dict.fromkeys(names))):
            arrays = [inputs.offsets(batch, segment), *([keys_of(batch, columns.key)] if keys else [])]
            arrays += transactions.columns_of(batch) if transactional else []
            batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
        return pa.Table.from_batches(batches, schema)

    with ThreadPoolExecutor(READERS) as readers:
        tables = list(readers.map(narrow, segments))
    records, sizes = pa.concat_tables([schema.empty_table(), *tables]), [len(one) for one in tables]
    return records, _before_keys(inputs, segments, records, sizes), sizes


def _before_keys(inputs: PlanInputs, segments: Sequence[Segment], records: pa.Table, sizes: Sequence[int]) -> Marks:
    offsets = np.split(records["offset"].to_numpy(), np.cumsum(sizes)[:-1])
    marks = Marks.of(len(records))
    # A tombstone that was restored and removed again is twice among the removed ones, which are the last segments.
    live = sum(one.level != REMOVED for one in segments)
    flags = [repeated(inputs, segments[part], offsets[part]) for part in (slice(live), slice(live, None))]
    if any(one.any() for one in flags):
        marks = marks.having(repeated=np.concatenate(flags))
    if inputs.plan.transactional:
        levels = np.repeat([one.level for one in segments[:live]], sizes[:live])
        states = transactions.states(records[: len(levels)], levels, inputs.plan.markers)
        none = np.zeros(sum(sizes[live:]), dtype=np.bool_)
        control, aborted, ended = (np.append(flags, none) for flags in states)
        marks = marks.having(control=control, aborted=aborted, ended=ended)
    return marks


def _key_type(inputs: PlanInputs) -> pa.DataType:
    if len(inputs.columns.key) > 1:
        return pa.large_binary()
    return inputs.files.arrow_schema(inputs.columns.key).field(0).type


def _compared(keys: pa.Array | pa.ChunkedArray, before: Marks) -> pa.Array | pa.ChunkedArray:
    """``keys``, with NULL for records that neither supersede nor are superseded, whatever their key (C1, C10)."""
    excluded = before.flags("control") | before.flags("aborted") | before.flags("repeated")
    return pc.if_else(pa.array(excluded), pa.scalar(None, keys.type), keys) if excluded.any() else keys


KEYS: Final = pa.schema(
    [("key", pa.large_binary()), ("log_offset", pa.int64()), ("place", pa.int64()), ("removed", pa.bool_())]
)
"""The keys of records as bytes, NULL if not compared (C1, C5, C10), and the records' offsets and places."""
NEWEST: Final = """
    SELECT arg_max(place, rank) AS place, coalesce(min(rank) FILTER (NOT removed) < max(rank), false) AS has_older
    FROM (SELECT *, 2 * log_offset::HUGEINT + (NOT removed)::INTEGER AS rank FROM keys WHERE key IS NOT NULL)
    GROUP BY key HAVING NOT bool_and(removed)
"""
"""The newest record of each key. A removed tombstone is older than a record at its offset; it is the newest only if its
key has records, and all of these are older (C9)."""
_ROWS: Final = 1 << 15
"""Newest records that are flagged at a time."""


def on_disk(inputs: PlanInputs) -> Survey[Marks]:
    """Compare the keys of ``inputs`` by DuckDB. Raises what ``survey`` does, and UnavailableError for a full disk."""
    before = before_keys(inputs)
    sizes = [mark.records for mark in before]
    newest, has_older = np.zeros((2, sum(sizes)), dtype=np.bool_)
    for rows in _newest(inputs, before):
        places = rows["place"].to_numpy()
        newest[places] = True
        has_older[places] = rows["has_older"].to_numpy(zero_copy_only=False)
    parts = Marks.joined(before).having(newest=newest, has_older=has_older).split(sizes)
    return Survey.of(inputs.plan, dict(zip((one.path for one in inputs.segments), parts, strict=True)))


def before_keys(inputs: PlanInputs) -> list[Marks]:
    """The marks of each segment that need no comparison of keys."""
    groups = [inputs.segments] if inputs.plan.transactional else overlapping(inputs)
    read = (_read(inputs, group, keys=False) for group in groups)
    return [mark for _, every, sizes in read for mark in every.split(sizes)]


def overlapping(inputs: PlanInputs) -> list[list[Segment]]:
    """The plan's segments in groups that share no offsets with each other; removed tombstones form a separate group."""
    groups: list[list[Segment]] = []
    end = -1
    for segment in inputs.segments:
        is_removed = segment.level == REMOVED
        if not groups or is_removed != (groups[-1][0].level == REMOVED) or segment.base_offset > end:
            groups.append([])
        groups[-1].append(segment)
        end = 2**63 if is_removed else max(end, segment.last_offset)
    return groups


def keys_of_segment(
    inputs: PlanInputs, segment: Segment, before: Marks, first: int
) -> Iterator[tuple[pa.RecordBatch, Marks]]:
    """All records of ``segment`` as rows of KEYS, with their marks ``before``; ``first`` is the place of the first."""
    names = [*inputs.columns.key, inputs.columns.offset]
    for start, batch in inputs.batches(segment, list(dict.fromkeys(names))):
        marks = before.part(start, len(batch))
        keys = _compared(bytes_of(keys_of(batch, inputs.columns.key)), marks)
        places = np.arange(first + start, first + start + len(batch))
        removed = pa.repeat(pa.scalar(segment.level == REMOVED), len(batch))
        columns = [keys, inputs.offsets(batch, segment), places, removed]
        yield pa.RecordBatch.from_arrays(columns, schema=KEYS), marks


def _newest(inputs: PlanInputs, before: Sequence[Marks]) -> Iterator[pa.RecordBatch]:
    """The rows of NEWEST, from DuckDB, which spills to disk, and sees no other files and no hosts."""
    import duckdb

    failed: list[Exception] = []

    def keys() -> Iterator[pa.RecordBatch]:
        first = 0
        try:
            for segment, mark in zip(inputs.segments, before, strict=True):
                yield from (rows for rows, _ in keys_of_segment(inputs, segment, mark, first))
                first += mark.records
        except Exception as error:
            failed.append(error)  # DuckDB would tell it in words of its own
            raise

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
            engine.register("keys", pa.RecordBatchReader.from_batches(KEYS, keys()))
            try:
                yield from engine.sql(NEWEST).to_arrow_reader(_ROWS)
            except duckdb.Error as error:
                if failed:
                    raise failed[0] from error
                reason = " ".join(str(error).split())
                raise UnavailableError(
                    f"table {inputs.plan.table} ({inputs.plan.title}): its keys can't be compared in "
                    f"{tempfile.gettempdir()} now: {reason}; try again later"
                ) from error
