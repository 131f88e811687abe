"""The survey of a plan: finds the newest record of each key (C2, C9) from narrow columns, before any value is read."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firnlake.compact.duplicates import repeated
from firnlake.compact.inputs import NarrowSegment, PlanInputs, key_type, without
from firnlake.compact.marks import Marks, StoredMarks
from firnlake.compact.tail import READERS, HeadKeys, tail_marks
from firnlake.compact.transactions import aborted_and_ended
from firnlake.iceberg.branches import REMOVED
from firnlake.iceberg.keys import NO_KEY, Flags, Longs, codes_of
from firnlake.job.job import staying
from firnlake.table.segment import Segment


def latest_per_key(codes: Longs, offsets: Longs, removed_before: Flags | None = None) -> tuple[Flags, Flags]:
    """Two flags per record: whether it is the newest of its key, and whether an older record of its key is present.

    ``codes`` identify keys and must be dense, because memory grows with the largest code. ``removed_before`` marks
    tombstones that an earlier cleaning removed (C9). Such a tombstone never counts as an older record, and is the
    newest of its key only if the key has present records and all of these are older. Present records of a key have
    different offsets. Records without a key, control records, and records of aborted transactions are not compared:
    they have the code NO_KEY, and both their flags are false.
    """
    order = _by_offset(codes, offsets, removed_before)
    keys = codes if order is None else codes[order]
    removed = removed_before if order is None or removed_before is None else removed_before[order]
    latest, later = _in_order(keys, removed)
    if order is None:
        return latest, later
    newest, has_older = np.zeros((2, len(codes)), dtype=np.bool_)
    newest[order], has_older[order] = latest, later
    return newest, has_older


def _by_offset(codes: Longs, offsets: Longs, removed_before: Flags | None) -> NDArray[np.intp] | None:
    """Indices of the compared records in offset order; None if all records are compared and already in this order.

    A removed tombstone comes before a present record at the same offset, so that the present record is the newer.
    """
    if len(codes) == 0 or (codes.min() > NO_KEY and bool((offsets[1:] > offsets[:-1]).all())):
        return None
    taking_part = codes != NO_KEY
    if removed_before is None:
        part = np.flatnonzero(taking_part)
    else:
        part = np.concatenate(
            (np.flatnonzero(taking_part & removed_before), np.flatnonzero(taking_part & ~removed_before))
        )
    of_part = offsets[part]
    if bool((of_part[1:] > of_part[:-1]).all()):
        return part
    # Stable, and fast on concatenated sorted segments.
    return part[np.argsort(of_part, kind="stable")]


def _in_order(codes: Longs, removed: Flags | None) -> tuple[Flags, Flags]:
    """Both flags for records in offset order that all have a key."""
    places = np.arange(len(codes))
    size = int(codes.max()) + 1 if len(codes) else 0
    # Of several values for one place, an assignment keeps the last (NumPy, "Indexing on ndarrays").
    last, first = np.empty(size, dtype=np.intp), np.empty(size, dtype=np.intp)
    last[codes] = places
    newest = last[codes] == places
    if removed is None:
        first[codes[::-1]] = places[::-1]
        return newest, first[codes] < places
    first[codes] = len(codes)
    present = np.flatnonzero(~removed)[::-1]
    first[codes[present]] = present
    has_older = first[codes] < places
    # A removed tombstone must be newer than a present record, and thus than all of them.
    return newest & (~removed | has_older), has_older


M = TypeVar("M", bound=Marks | StoredMarks)
"""Where the marks are: in memory, or in a file."""


@dataclass(frozen=True)
class Survey(Generic[M]):
    """Result of comparing a plan's keys: marks by path, and the segments that stay in place.

    ``kept`` is the approximate number of records to write per segment, because horizons of tombstones are not yet read.
    """

    marks: Mapping[str, M]
    in_place: frozenset[str]
    kept: Mapping[str, int]


NO_SURVEY: Final[Survey[Any]] = Survey({}, frozenset(), {})
"""Of a plan that copies its records."""


KEY_BYTES: Final = 512 << 20
"""Maximum bytes of keys, with the data kept beside them, that a survey compares in memory (approximate)."""
_BESIDE: Final = 64
"""Bytes kept per key: its code, its offset, its place, and its part of the hash table."""
_ENCODED: Final = 8
"""How many times larger keys are in memory than in a file, where what they have in common is stored once."""


def has_many_keys(inputs: PlanInputs) -> bool:
    """True if the keys to compare are more than a task should hold in memory."""
    older = inputs.plan.older  # sorts all segments
    compared = [one for one in inputs.segments if one.path not in older]
    told = ((one, inputs.key_bytes.get(one.path)) for one in compared)
    keys = (one.bytes // 2 if size is None else size * _ENCODED for one, size in told)
    return sum(segment.records * _BESIDE for segment in compared) + sum(keys) > KEY_BYTES


def survey(inputs: PlanInputs) -> Survey[Marks]:
    """Compare the keys of ``inputs`` in this process: in memory, or, if they are too many, by an engine that spills.

    Raises RefusedError for records that contradict each other.
    """
    if not has_many_keys(inputs):
        return survey_in_memory(inputs)
    from firnlake.compact.large_survey import large_survey

    return large_survey(inputs)


def survey_in_memory(inputs: PlanInputs) -> Survey[Marks]:
    """Compare the keys of ``inputs``, all of them in memory."""
    older = inputs.plan.older
    if not older:
        return _surveyed(inputs, inputs.segments)
    head = [segment for segment in inputs.segments if segment.path not in older]
    tail = [segment for segment in inputs.segments if segment.path in older]
    keys = HeadKeys.empty(key_type(inputs))
    surveyed = _surveyed(inputs, head, keys)
    marks, superseding = tail_marks(inputs, tail, keys)
    return with_tail(inputs, surveyed, marks, superseding)


def with_tail(
    inputs: PlanInputs, head: Survey[Marks], tail: Mapping[str, Marks], superseding: Mapping[str, Flags]
) -> Survey[Marks]:
    """``head`` plus the marks of the ``tail``. ``superseding`` flags, by path, head records whose key is in both."""
    marks = {
        path: replace(
            own, has_older=superseding[path] | own.has_older if own.has_older is not None else superseding[path]
        )
        if path in superseding
        else own
        for path, own in head.marks.items()
    }
    touched = {path for path, own in tail.items() if own.newest is not None}
    in_place = staying(inputs.plan, touched)
    kept = dict(head.kept) | {path: own.newest_count for path, own in tail.items() if path not in in_place}
    return Survey(marks | {path: own for path, own in tail.items() if path not in in_place}, in_place, kept)


def _surveyed(inputs: PlanInputs, segments: Sequence[Segment], keys: "HeadKeys | None" = None) -> Survey[Marks]:
    """Compare all ``segments`` with each other and collect their keys in ``keys``."""
    with ThreadPoolExecutor(READERS) as readers:
        narrow = list(readers.map(inputs.narrow, segments))
    marks = marks_before_keys(inputs, segments, narrow)
    taking_part = [_participants(own, mark) for own, mark in zip(narrow, marks, strict=True)]
    codes, known = codes_of(pa.chunked_array([key for own in taking_part for key in own], key_type(inputs)))
    offsets = np.concatenate([np.empty(0, dtype=np.int64), *(own.offsets for own in narrow)])
    removed = None
    if any(segment.level == REMOVED for segment in segments):
        removed = np.repeat([one.level == REMOVED for one in segments], [len(own.offsets) for own in narrow])
    newest, has_older = latest_per_key(codes, offsets, removed)
    if keys is not None:
        keys.add(known, codes, [len(own.offsets) for own in narrow], [one.path for one in segments])
    by_path: dict[str, Marks] = {}
    kept: dict[str, int] = {}
    start = 0
    for segment, own, mark in zip(segments, narrow, marks, strict=True):
        of = slice(start, start + len(own.offsets))
        by_path[segment.path] = replace(mark, newest=newest[of], has_older=has_older[of])
        kept[segment.path] = int(np.count_nonzero(newest[of])) + own.keyless
        start = of.stop
    return Survey(by_path, frozenset(), kept)


def marks_before_keys(inputs: PlanInputs, segments: Sequence[Segment], narrow: Sequence[NarrowSegment]) -> list[Marks]:
    """Marks that need no key comparison: duplicates, and transaction states."""
    live = [number for number, segment in enumerate(segments) if segment.level != REMOVED]
    offsets = [narrow[number].offsets for number in live]
    marks = [Marks(len(own.offsets)) for own in narrow]
    for number, flags in zip(live, repeated(inputs, [segments[one] for one in live], offsets), strict=True):
        marks[number] = replace(marks[number], repeated=flags)
    _mark_removed_twice(segments, narrow, marks)
    if inputs.plan.transactional:
        _mark_transactions(inputs, [segments[one] for one in live], [narrow[one] for one in live], live, marks)
    return marks


def _mark_transactions(
    inputs: PlanInputs,
    segments: Sequence[Segment],
    narrow: Sequence[NarrowSegment],
    live: Sequence[int],
    marks: list[Marks],
) -> None:
    states = [own.transactions for own in narrow if own.transactions is not None]
    aborted, ended = aborted_and_ended(states, [own.offsets for own in narrow], inputs.plan.markers)
    for number, state, is_aborted, has_ended in zip(live, states, aborted, ended, strict=True):
        marks[number] = replace(marks[number], control=state.control, aborted=is_aborted, ended=has_ended)
    assert len(segments) == len(states)  # a transactional plan reads the states of all its records


def _mark_removed_twice(segments: Sequence[Segment], narrow: Sequence[NarrowSegment], marks: list[Marks]) -> None:
    """Mark duplicates among removed tombstones: a tombstone that was restored and removed again is there twice."""
    removed = [number for number, segment in enumerate(segments) if segment.level == REMOVED]
    if not removed:
        return
    offsets = np.concatenate([narrow[number].offsets for number in removed])
    _, first = np.unique(offsets, return_index=True)
    again = np.ones(len(offsets), dtype=np.bool_)
    again[first] = False
    start = 0
    for number in removed:
        end = start + len(narrow[number].offsets)
        marks[number] = replace(marks[number], repeated=again[start:end])
        start = end


def _participants(narrow: NarrowSegment, mark: Marks) -> list[pa.Array]:
    """The keys of a segment's records; NULL for records that neither supersede nor are superseded (C10)."""
    excluded = mark.excluded
    if excluded is None:
        return list(narrow.keys)
    participants, start = [], 0
    for keys in narrow.keys:
        participants.append(without(keys, pa.array(excluded[start : start + len(keys)])))
        start += len(keys)
    return participants
