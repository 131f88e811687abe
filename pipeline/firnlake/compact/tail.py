"""Compare the tail with the keys of the head. Tail records are older, so it matters only if the head has their keys.

Only the key columns of the tail are read, without the row groups whose bounds rule out every key of the head.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from firnlake.compact.inputs import PlanInputs
from firnlake.compact.marks import Marks
from firnlake.iceberg.data_files import OpenFile
from firnlake.iceberg.keys import NO_KEY, Flags, Longs, keys_of, places_in
from firnlake.table.segment import Segment

LOOKED_UP: Final = 100_000
"""Maximum number of keys that are looked up in the bounds of row groups."""
CHUNK: Final = 1 << 21
"""Approximate number of tail keys per lookup; large, because each lookup hashes the keys of the head again."""
READERS: Final = 4
"""Number of files read at the same time; several, because on object stores latency dominates."""


@dataclass
class HeadKeys:
    """The distinct keys of a plan's head, and for each record the index of its key."""

    keys: pa.Array
    codes: Longs
    ends: list[int] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    @classmethod
    def empty(cls, kind: pa.DataType) -> "HeadKeys":
        """No keys of type ``kind``."""
        return cls(pa.array([], kind), np.empty(0, dtype=np.int64))

    def add(self, known: pa.Array, codes: Longs, sizes: Sequence[int], paths: Sequence[str]) -> None:
        """Set the keys of the head: the distinct keys, and the code of each record."""
        self.keys = known
        self.codes = codes
        self.ends = np.cumsum(sizes).tolist()
        self.paths = list(paths)

    def by_path(self, chosen: Flags) -> dict[str, Flags]:
        """Flags of the records whose keys are ``chosen``, by path of their segment."""
        flags = np.append(chosen, False)[self.codes]  # for NO_KEY
        starts = [0, *self.ends][: len(self.ends)]
        flags_by_path = {path: flags[start:end] for path, start, end in zip(self.paths, starts, self.ends, strict=True)}
        return {path: own for path, own in flags_by_path.items() if own.any()}


def tail_marks(
    inputs: PlanInputs, tail: Sequence[Segment], head: HeadKeys
) -> tuple[dict[str, Marks], dict[str, Flags]]:
    """The marks of the records in ``tail``, and flags of the head records that supersede one of these; both by path."""
    bounds = _Bounds.of(head.keys, inputs)
    superseding = np.zeros(len(head.keys), dtype=np.bool_)
    marks = {segment.path: Marks(inputs.visible(segment)) for segment in tail}
    looked_at = tail if len(head.keys) else ()
    with ThreadPoolExecutor(READERS) as readers:
        for group in _groups(looked_at):
            pieces = [
                piece for of_segment in readers.map(partial(_pieces, inputs, bounds), group) for piece in of_segment
            ]
            if pieces:
                _mark(pieces, head, superseding, marks)
    return marks, head.by_path(superseding)


def _groups(segments: Iterable[Segment]) -> Iterator[list[Segment]]:
    """Groups of segments with about CHUNK records each."""
    group: list[Segment] = []
    for segment in segments:
        group.append(segment)
        if sum(one.records for one in group) >= CHUNK:
            yield group
            group = []
    if group:
        yield group


@dataclass(frozen=True)
class _Piece:
    """Keys of consecutive visible records of ``segment``; the first is its record number ``start``."""

    segment: Segment
    start: int
    keys: pa.Array


def _pieces(inputs: PlanInputs, bounds: "_Bounds | None", segment: Segment) -> list[_Piece]:
    """The keys of row groups that may hold a key of the head."""
    pieces = []
    row = 0
    with inputs.files.opened(inputs.sources[segment.path]) as file:
        for group in range(file.file.metadata.num_row_groups):
            if bounds is None or bounds.may_hold(file, group):
                start = row
                for batch in inputs.of_row_group(segment, file, group, inputs.columns.key):
                    pieces.append(_Piece(segment, start, keys_of(batch, inputs.columns.key)))
                    start += batch.num_rows
            row += inputs.visible_in(segment, file, group)
    return pieces


def _mark(pieces: Sequence[_Piece], head: HeadKeys, superseding: Flags, marks: dict[str, Marks]) -> None:
    """Look up the keys of all pieces at once, because each lookup hashes the keys of the head again."""
    codes = places_in(pa.chunked_array([piece.keys for piece in pieces]), head.keys)
    hit = codes != NO_KEY
    superseding[codes[hit]] = True
    at = 0
    for piece in pieces:
        lost = hit[at : at + len(piece.keys)]
        at += len(piece.keys)
        if lost.any():
            path = piece.segment.path
            known = marks[path].newest
            records = marks[path].records
            newest = np.ones(records, dtype=np.bool_) if known is None else known
            newest[piece.start : piece.start + len(lost)] &= ~lost
            marks[path] = Marks(records, newest=newest)


@dataclass(frozen=True)
class _Bounds:
    """The head's keys in order, to be compared with the bounds of row groups in file footers."""

    column: str
    keys: Sequence[Any]

    @classmethod
    def of(cls, keys: pa.Array, inputs: PlanInputs) -> "_Bounds | None":
        """Sort ``keys``; None if bounds don't help: composite keys, types with another order in footers, or many."""
        kind = keys.type
        ordered = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind)
        if len(inputs.columns.key) > 1 or not ordered or len(keys) > LOOKED_UP:
            return None
        return cls(inputs.columns.key[0], sorted(keys.to_pylist()))

    def may_hold(self, file: OpenFile, group: int) -> bool:
        """True unless the file's footer rules out that the row group holds one of the keys."""
        bounds = file.bounds(self.column, group)
        if bounds is None or not isinstance(bounds[0], type(self.keys[0])):
            return True
        at = bisect_left(self.keys, bounds[0])
        return at < len(self.keys) and self.keys[at] <= bounds[1]
