"""The survey of a plan: find the newest record per key from narrow columns, before any value is read."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from pipeline.compact.duplicates import repeated
from pipeline.compact.inputs import InputSegment, NarrowSegment, PlanInputs, key_type, without
from pipeline.compact.latest_per_key import latest_per_key
from pipeline.compact.marks import Marks
from pipeline.compact.tail import READERS, HeadKeys, tail_marks
from pipeline.compact.transactions import aborted_and_ended
from pipeline.lake.keys import NO_KEY, codes_of
from pipeline.lake.numpy_types import Flags
from pipeline.plan.in_place import staying


@dataclass(frozen=True)
class Survey:
    """Result of comparing a plan's keys: marks by path, and the segments that stay in place.

    ``kept`` is the approximate number of records to write per segment: the effect of a tombstone's horizon is unknown.
    """

    marks: Mapping[str, Marks]
    in_place: frozenset[str]
    kept: Mapping[str, int]


def survey(inputs: PlanInputs) -> Survey:
    """Compare the keys of ``inputs`` in this process. Raises RefusedError for records that contradict each other."""
    older = inputs.plan.older
    if not older:
        return _surveyed(inputs, inputs.segments)
    head = [segment for segment in inputs.segments if segment.path not in older]
    tail = [segment for segment in inputs.segments if segment.path in older]
    keys = HeadKeys.empty(key_type(inputs))
    surveyed = _surveyed(inputs, head, keys)
    marks, superseding = tail_marks(inputs, tail, keys)
    return with_tail(inputs, surveyed, marks, superseding)


def with_tail(inputs: PlanInputs, head: Survey, tail: Mapping[str, Marks], superseding: Mapping[str, Flags]) -> Survey:
    """``head`` plus the tail's marks; ``superseding`` flags the head records, by path, whose keys are in both."""
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


def _surveyed(inputs: PlanInputs, segments: Sequence[InputSegment], keys: "HeadKeys | None" = None) -> Survey:
    """Compare all ``segments`` with each other and collect their keys in ``keys``."""
    with ThreadPoolExecutor(READERS) as readers:
        narrow = list(readers.map(inputs.narrow, segments))
    marks = marks_before_keys(inputs, segments, narrow)
    taking_part = [_participants(own, mark) for own, mark in zip(narrow, marks, strict=True)]
    codes, known = codes_of(pa.chunked_array([key for own in taking_part for key in own], key_type(inputs)))
    offsets = np.concatenate([np.empty(0, dtype=np.int64), *(own.offsets for own in narrow)])
    removed = None
    if any(segment.removed_before for segment in segments):
        removed = np.repeat([one.removed_before for one in segments], [len(own.offsets) for own in narrow])
    newest, has_older = latest_per_key(codes, offsets, removed)
    if keys is not None:
        keys.add(known, codes, [len(own.offsets) for own in narrow], [one.path for one in segments])
    by_path: dict[str, Marks] = {}
    kept: dict[str, int] = {}
    start = 0
    for segment, own, mark in zip(segments, narrow, marks, strict=True):
        of = slice(start, start + len(own.offsets))
        apart = codes[of] == NO_KEY
        by_path[segment.path] = replace(
            mark, newest=newest[of], has_older=has_older[of], apart=apart if apart.any() else None
        )
        kept[segment.path] = int(np.count_nonzero(newest[of])) + own.keyless
        start = of.stop
    return Survey(by_path, frozenset(), kept)


def marks_before_keys(
    inputs: PlanInputs, segments: Sequence[InputSegment], narrow: Sequence[NarrowSegment]
) -> list[Marks]:
    """Marks that need no key comparison: duplicates, and transaction states."""
    live = [number for number, segment in enumerate(segments) if not segment.removed_before]
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
    segments: Sequence[InputSegment],
    narrow: Sequence[NarrowSegment],
    live: Sequence[int],
    marks: list[Marks],
) -> None:
    states = [own.transactions for own in narrow if own.transactions is not None]
    aborted, ended = aborted_and_ended(states, [own.offsets for own in narrow], inputs.plan.markers)
    for number, state, is_aborted, has_ended in zip(live, states, aborted, ended, strict=True):
        marks[number] = replace(marks[number], control=state.control, aborted=is_aborted, ended=has_ended)
    assert len(segments) == len(states)  # a transactional plan reads the states of all its records


def _mark_removed_twice(segments: Sequence[InputSegment], narrow: Sequence[NarrowSegment], marks: list[Marks]) -> None:
    """Mark duplicates among removed tombstones: one that was restored and removed again is listed twice."""
    removed = [number for number, segment in enumerate(segments) if segment.removed_before]
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
    excluded = [flags for flags in (mark.control, mark.aborted, mark.repeated) if flags is not None and flags.any()]
    if not excluded:
        return list(narrow.keys)
    out = np.logical_or.reduce(excluded)
    participants, start = [], 0
    for keys in narrow.keys:
        participants.append(without(keys, pa.array(out[start : start + len(keys)])))
        start += len(keys)
    return participants
