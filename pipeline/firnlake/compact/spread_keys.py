"""The survey of a plan whose keys exceed one task: the keys, but never the values, are spread over buckets by hash.

Duplicate offsets and transactions are resolved first, because both need records of different keys together. Then each
bucket compares its keys and returns marks of all segments; the marks of all buckets are merged bit by bit.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from firnlake.compact.inputs import PlanInputs, without
from firnlake.compact.keys import Survey, latest_per_key, marks_before_keys
from firnlake.compact.marks import Marks, PackedMarks
from firnlake.engine.engine import Engine
from firnlake.iceberg.keys import NO_KEY, Flags, buckets_of, codes_of
from firnlake.job.job import staying

KEY_BYTES: Final = 512 << 20
"""Approximate bytes of keys, with the data kept beside them, that one task compares."""
_BESIDE: Final = 64
"""Bytes kept per key: its code, its offset, its place, and its part of the hash table."""
_ENCODED: Final = 8
"""How many times larger keys are in memory than in a file, where what they have in common is stored once."""
_KEY: Final = "key"


@dataclass(frozen=True)
class _Spread:
    """A segment for one spreading task: its ``number`` in the plan, and the marks known so far."""

    inputs: PlanInputs
    number: int
    mark: Marks
    buckets: int


def is_wide(inputs: PlanInputs) -> bool:
    """True if the keys to compare are more than one task should hold."""
    return _key_bytes(inputs) > KEY_BYTES


def survey_wide(inputs: PlanInputs, engine: Engine) -> Survey | Exception:
    """Survey a wide plan in several rounds of tasks; returns the survey, or the exception that a task raised."""
    before = _before_keys(inputs, engine)
    if isinstance(before, Exception):
        return before
    buckets = max(engine.parallelism, -(-_key_bytes(inputs) // KEY_BYTES))
    tasks = [
        _Spread(inputs.only([segment]), number, before[number], buckets)
        for number, segment in enumerate(inputs.segments)
    ]
    sizes = tuple(mark.records for mark in before)
    gather = partial(_gather, inputs, sizes)
    gathered = engine.shuffle(_spread, gather, tasks, buckets, title=f"survey {inputs.plan.title}")
    marks: list[Marks] = []
    for part in gathered:
        if isinstance(part, Exception):
            return part
        own = [packed.unpacked() for packed in part]
        marks = own if not marks else [one.merged(other) for one, other in zip(marks, own, strict=True)]
    return _assembled(inputs, before, marks)


def _key_bytes(inputs: PlanInputs) -> int:
    """Approximate bytes to compare: the keys of all segments except those that are known to hold older records."""
    older = inputs.plan.older  # sorts all segments
    compared = [one for one in inputs.segments if one.path not in older]
    keys = (one.source.bytes // 2 if one.key_bytes is None else one.key_bytes * _ENCODED for one in compared)
    return sum(segment.records * _BESIDE for segment in compared) + sum(keys)


def _before_keys(inputs: PlanInputs, engine: Engine) -> list[Marks] | Exception:
    """Marks that need no key comparison, from a task per overlapping group; from one task if transactional."""
    groups = [list(range(len(inputs.segments)))] if inputs.plan.transactional else _overlapping(inputs)
    marked = engine.map(partial(_marked, inputs), groups, title=f"survey {inputs.plan.title}")
    marks: list[Marks] = [Marks(segment.records) for segment in inputs.segments]
    for group, own in zip(groups, marked, strict=True):
        if isinstance(own, Exception):
            return own
        for number, mark in zip(group, own, strict=True):
            marks[number] = mark
    return marks


def _marked(inputs: PlanInputs, group: Sequence[int]) -> list[Marks]:
    segments = [inputs.segments[number] for number in group]
    return marks_before_keys(inputs, segments, [inputs.narrow(segment) for segment in segments])


def _overlapping(inputs: PlanInputs) -> list[list[int]]:
    """The plan's segments in groups that share no offsets with each other; removed tombstones form a separate group."""
    groups: list[list[int]] = []
    end = -1
    removed = [number for number, segment in enumerate(inputs.segments) if segment.removed_before]
    for number, segment in enumerate(inputs.segments):
        if segment.removed_before:
            continue
        if not groups or segment.facts.base_offset > end:
            groups.append([])
        groups[-1].append(number)
        end = max(end, segment.facts.last_offset)
    return [*groups, removed] if removed else groups


def _spread(task: _Spread) -> Iterator[tuple[int, pa.Table]]:
    """Key, offset and place of every compared record, by the bucket of its key."""
    (segment,) = task.inputs.segments
    start = 0
    for narrow in task.inputs.narrow_batches(segment):
        rows = len(narrow.offsets)
        excluded = _excluded(task.mark, start, rows)
        keys = narrow.keys[0] if excluded is None else without(narrow.keys[0], pa.array(excluded))
        table = pa.table(
            {
                _KEY: keys,
                "offset": narrow.offsets,
                "segment": np.full(rows, task.number, dtype=np.int32),
                "row": np.arange(start, start + rows),
            }
        )
        bucket = buckets_of(keys, task.buckets)
        order = np.argsort(bucket, kind="stable")
        ends = np.searchsorted(bucket[order], np.arange(task.buckets + 1))
        for own in range(task.buckets):
            if ends[own] < ends[own + 1]:
                yield own, table.take(pa.array(order[ends[own] : ends[own + 1]]))
        start += rows


def _excluded(mark: Marks, start: int, rows: int) -> Flags | None:
    flags = [one[start : start + rows] for one in (mark.control, mark.aborted, mark.repeated) if one is not None]
    return np.logical_or.reduce(flags) if flags else None


def _gather(inputs: PlanInputs, sizes: Sequence[int], _bucket: int, tables: Iterable[pa.Table]) -> list[PackedMarks]:
    """Marks of all segments, which have ``sizes`` records, with flags for the records of one bucket only. The marks are
    packed, because the marks of all buckets are held at the same time."""
    held = [table for table in tables if table.num_rows]
    newest = [np.zeros(size, dtype=np.bool_) for size in sizes]
    has_older = [np.zeros(size, dtype=np.bool_) for size in sizes]
    apart = [np.zeros(size, dtype=np.bool_) for size in sizes]
    if held:
        table = pa.concat_tables(held)
        codes, _ = codes_of(table[_KEY])
        segment, row = table["segment"].to_numpy(), table["row"].to_numpy()
        removed = np.array([one.removed_before for one in inputs.segments], dtype=np.bool_)[segment]
        is_newest, supersedes = latest_per_key(codes, table["offset"].to_numpy(), removed if removed.any() else None)
        for number in np.unique(segment).tolist():
            of = segment == number
            newest[number][row[of]] = is_newest[of]
            has_older[number][row[of]] = supersedes[of]
            apart[number][row[of]] = codes[of] == NO_KEY
    return [
        Marks(size, newest=newest[number], has_older=has_older[number], apart=apart[number]).packed()
        for number, size in enumerate(sizes)
    ]


def _assembled(inputs: PlanInputs, before: Sequence[Marks], bucket_marks: Sequence[Marks]) -> Survey:
    plan = inputs.plan
    marks: dict[str, Marks] = {}
    kept: dict[str, int] = {}
    touched: set[str] = set()
    for segment, own, mark in zip(inputs.segments, before, bucket_marks, strict=True):
        whole = replace(own, newest=mark.newest, has_older=mark.has_older, apart=mark.apart)
        if whole.newest_count < own.records:
            touched.add(segment.path)
        marks[segment.path] = whole
        kept[segment.path] = whole.newest_count
    in_place = staying(plan, touched) if plan.tail_is_older else frozenset[str]()
    return Survey({path: own for path, own in marks.items() if path not in in_place}, in_place, kept)
