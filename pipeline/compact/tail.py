"""The tail against the keys of the head: every record of the tail is older, so only whether its key is there counts.

The tail is read narrow, and not at all where the bounds of a row group say that no key of the head is in it.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pipeline.compact.inputs import InputSegment, PlanInputs
from pipeline.compact.keys import keys_of, places_in
from pipeline.compact.latest_per_key import NO_KEY, Flags, Longs
from pipeline.compact.marks import Marks
from pipeline.lake.data_files import OpenFile

LOOKED_UP: Final = 100_000
"""So few keys are looked up in the bounds of row groups."""
CHUNK: Final = 1 << 21
"""About so many keys of the tail are looked up at a time: the keys of the head are hashed for each time."""
READERS: Final = 4
"""Files read at the same time: on object stores the wait dominates."""


@dataclass
class HeadKeys:
    """The keys of a plan's head, and which of its records is the newest of each."""

    keys: pa.Array
    newest: Longs
    """Place of the newest record of a key among all records of the head."""
    ends: list[int] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    @classmethod
    def empty(cls, kind: pa.DataType) -> "HeadKeys":
        """No keys of type ``kind``."""
        return cls(pa.array([], kind), np.empty(0, dtype=np.int64))

    def add(self, known: pa.Array, codes: Longs, newest: Flags, sizes: Sequence[int], paths: Sequence[str]) -> None:
        """Take the keys of a head: its dictionary, the code of each record, and which are the newest."""
        self.keys = known
        self.newest = np.full(len(known), NO_KEY, dtype=np.int64)
        places = np.flatnonzero(newest)
        self.newest[codes[places]] = places
        self.ends = np.cumsum(sizes).tolist()
        self.paths = list(paths)

    def by_path(self, codes: Longs) -> dict[str, Flags]:
        """The newest records of the keys with these codes, as flags of the records of each segment."""
        flags = np.zeros(self.ends[-1] if self.ends else 0, dtype=np.bool_)
        flags[self.newest[codes]] = True
        starts = [0, *self.ends][: len(self.ends)]
        found = {path: flags[start:end] for path, start, end in zip(self.paths, starts, self.ends, strict=True)}
        return {path: own for path, own in found.items() if own.any()}


def tail_marks(
    inputs: PlanInputs, tail: Sequence[InputSegment], head: HeadKeys
) -> tuple[dict[str, Marks], dict[str, Flags]]:
    """The marks of the ``tail``'s records by path, and which records of the head supersede one of them."""
    bounds = _Bounds.of(head.keys, inputs)
    superseding = np.zeros(len(head.keys), dtype=np.bool_)
    found = {segment.path: Marks(segment.records) for segment in tail}
    looked_at = [one for one in tail if len(head.keys) and (bounds is None or bounds.leave_room(one.key_bounds))]
    with ThreadPoolExecutor(READERS) as readers:
        for group in _groups(looked_at):
            pieces = [
                piece for of_segment in readers.map(partial(_pieces, inputs, bounds), group) for piece in of_segment
            ]
            if pieces:
                _mark(pieces, head, superseding, found)
    return found, head.by_path(np.flatnonzero(superseding))


def _groups(segments: Iterable[InputSegment]) -> Iterator[list[InputSegment]]:
    """Segments of about CHUNK records together."""
    group: list[InputSegment] = []
    for segment in segments:
        group.append(segment)
        if sum(one.records for one in group) >= CHUNK:
            yield group
            group = []
    if group:
        yield group


@dataclass(frozen=True)
class _Piece:
    """Keys of neighbouring records of a segment, which begin at its record ``start``."""

    segment: InputSegment
    start: int
    keys: pa.Array


def _pieces(inputs: PlanInputs, bounds: "_Bounds | None", segment: InputSegment) -> list[_Piece]:
    """The keys of the row groups that may hold one of the head's."""
    found = []
    row = 0
    with inputs.files.opened(segment.source) as file:
        for group in range(file.file.metadata.num_row_groups):
            if bounds is None or bounds.may_hold(file, group):
                start = row
                for batch in file.batches(inputs.columns.key, [group]):
                    found.append(_Piece(segment, start, keys_of(batch, inputs.columns.key)))
                    start += batch.num_rows
            row += file.file.metadata.row_group(group).num_rows
    return found


def _mark(pieces: Sequence[_Piece], head: HeadKeys, superseding: Flags, found: dict[str, Marks]) -> None:
    """Look all pieces up at once: the keys of the head are hashed for each time."""
    codes = places_in(pa.chunked_array([piece.keys for piece in pieces]), head.keys)
    hit = codes != NO_KEY
    superseding[codes[hit]] = True
    at = 0
    for piece in pieces:
        lost = hit[at : at + len(piece.keys)]
        at += len(piece.keys)
        if lost.any():
            path = piece.segment.path
            known = found[path].newest
            newest = np.ones(piece.segment.records, dtype=np.bool_) if known is None else known
            newest[piece.start : piece.start + len(lost)] &= ~lost
            found[path] = Marks(piece.segment.records, newest=newest)


@dataclass(frozen=True)
class _Bounds:
    """The head's keys in order, to be looked up in what a footer tells of a row group."""

    column: str
    keys: Sequence[Any]

    @classmethod
    def of(cls, keys: pa.Array, inputs: PlanInputs) -> "_Bounds | None":
        """None where bounds say nothing: a key of several columns, a type that footers order differently, many keys."""
        kind = keys.type
        ordered = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind)
        if len(inputs.columns.key) > 1 or not ordered or len(keys) > LOOKED_UP:
            return None
        return cls(inputs.columns.key[0], sorted(keys.to_pylist()))

    def may_hold(self, file: OpenFile, group: int) -> bool:
        """Whether the footer leaves room for one of the keys in a row group."""
        return self.leave_room(file.bounds(self.column, group))

    def leave_room(self, bounds: tuple[Any, Any] | None) -> bool:
        """Whether one of the keys may lie within ``bounds``, both inclusive; None: they are not known."""
        if bounds is None or not isinstance(bounds[0], type(self.keys[0])):
            return True
        at = bisect_left(self.keys, bounds[0])
        return at < len(self.keys) and self.keys[at] <= bounds[1]
