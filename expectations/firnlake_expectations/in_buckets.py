"""Judge a plan that is too large for one task in buckets: its records by key, and once more by offset.

All records of a key are in one bucket, so each bucket is judged like a separate plan, and the counts are added up.
Records with the same offset may have different keys, so offsets get separate buckets, in words of 64. Records without
a key are hashed by their offset. The hash is DuckDB's, with a seed that only this module uses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from firnlake_expectations.filling import ROWS, Filler
from firnlake_expectations.judge import Limits, found_at_offsets, found_in
from firnlake_expectations.tables import BEFORE, Layout, Part
from firnlake_expectations.views import WORD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from firnlake_expectations.claim import Claim
    from firnlake_expectations.duck import Duck
    from firnlake_expectations.findings import Findings
    from firnlake_expectations.wording import Shown


PIECE_BYTES: Final = 128 << 20
"""Bytes of records that are put into their buckets at a time."""
_TABLE = b"firn.table"
"""Metadata key that names the table in Arrow data sent to a bucket."""
_OFFSETS = "offsets"
_TOLD = ("strangers", "files", "hidden")
"""Tables with few rows, checked in the first bucket."""


@dataclass(frozen=True)
class KeyBuckets:
    """The buckets of one wide plan: `keys` buckets by key, followed by `offsets` buckets by offset."""

    layout: Layout
    claim: Claim
    keys: int
    offsets: int

    @property
    def every(self) -> int:
        """Number of all buckets."""
        return self.keys + self.offsets

    def spread(self, parts: Sequence[Part], bounds: Limits) -> Iterator[tuple[int, pa.Table]]:
        """Yield the narrowed records of `parts`, without values, each table with its bucket."""
        for part in parts:
            duck = bounds.duck()
            try:
                self.layout.make(duck)
                Filler(duck, self.layout, [self.claim]).fill([part], threads=1)
                of_key = 'CASE WHEN key IS NULL THEN hash(7, "offset") ELSE hash(7, key) END'
                yield from _by_bucket(duck, _bucketed("*", part.side, of_key, self.keys), part.side, 0)
                if part.side == BEFORE:
                    columns = f"* REPLACE (NULL AS horizon{', NULL AS tombstone' if self.layout.reads_values else ''})"
                    offsets = _bucketed(columns, BEFORE, f"hash(7, {WORD})", self.offsets)
                    yield from _by_bucket(duck, offsets, _OFFSETS, self.keys)
                for name in _TOLD:
                    rows = duck.table(f"SELECT * FROM {name}")
                    if rows.num_rows:
                        yield 0, _named(rows, name)
            finally:
                duck.close()

    def gather(self, bucket: int, tables: Iterable[pa.Table], samples: Shown, bounds: Limits) -> Findings:
        """The findings in one bucket."""
        duck = bounds.duck()
        try:
            self.layout.make(duck)
            for table in tables:
                name = (table.schema.metadata or {})[_TABLE].decode()
                with duck.seeing(moved=table):
                    duck.run(f"INSERT INTO {BEFORE if name == _OFFSETS else name} SELECT * FROM moved")
            if bucket >= self.keys:
                return found_at_offsets(duck, self.layout, [self.claim], samples)[0]
            return found_in(duck, self.layout, [self.claim], samples, whole=False)[0]
        finally:
            duck.close()

    def closely(self) -> KeyBuckets:
        """The same buckets for a comparison with values."""
        return replace(self, layout=replace(self.layout, closely=True))


def _bucketed(columns: str, table: str, hashed: str, buckets: int) -> str:
    return f"SELECT {columns}, (({hashed}) % {buckets})::INTEGER AS bucket FROM {table}"


def _by_bucket(duck: Duck, query: str, name: str, first: int) -> Iterator[tuple[int, pa.Table]]:
    """The result of the query, whose last column is the bucket, in pieces of one bucket; all of it is never held."""
    for table in _tables(duck.batches(query, ROWS)):
        ordered = table.sort_by("bucket")
        numbers = ordered.column("bucket").to_numpy()
        records = _named(ordered.drop_columns(["bucket"]), name)
        starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
        for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
            yield first + int(numbers[start]), records.slice(start, end - start)


def _tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The records of the batches in tables of about PIECE_BYTES: smaller ones would cut buckets into more pieces."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= PIECE_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _named(table: pa.Table, name: str) -> pa.Table:
    return table.replace_schema_metadata({_TABLE: name.encode()})
