"""A plan too large for one task is judged in buckets: its records by their keys, and by offsets once more.

All records of a key are in one bucket, so that each is judged there as in a plan of its own; what is counted adds up.
Only records that share an offset may be of different keys: offsets go to buckets of their own, words of 64 together.
Records without a key go by their offset. The hash is DuckDB's, with a seed of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from expectations.judge import Bounds, found_at_offsets, found_in
from expectations.tables import BEFORE, Filler, Layout, Part
from expectations.views import WORD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from expectations.claim import Claim
    from expectations.findings import Findings
    from expectations.shown import Shown

_TABLE = b"firn.table"
"""In the metadata of a table that moves: which one it is."""
_OFFSETS = "offsets"
_TOLD = ("strangers", "files")
"""Few, and looked at in the first bucket."""


@dataclass(frozen=True)
class Buckets:
    """How one wide plan is spread: `keys` buckets by key, and behind them `offsets` by offset."""

    layout: Layout
    claim: Claim
    keys: int
    offsets: int

    @property
    def every(self) -> int:
        """How many there are."""
        return self.keys + self.offsets

    def spread(self, parts: Sequence[Part], bounds: Bounds) -> Iterator[tuple[int, pa.Table]]:
        """The narrowed records of `parts` by bucket; no values."""
        for part in parts:
            duck = bounds.duck()
            try:
                self.layout.make(duck)
                Filler(duck, self.layout, [self.claim]).fill([part], threads=1)
                of_key = 'CASE WHEN key IS NULL THEN hash(7, "offset") ELSE hash(7, key) END'
                yield from _by_bucket(duck.table(_bucketed("*", part.side, of_key, self.keys)), part.side, 0)
                if part.side == BEFORE:
                    columns = f"* REPLACE (NULL AS horizon{', NULL AS tombstone' if self.layout.closely else ''})"
                    offsets = duck.table(_bucketed(columns, BEFORE, f"hash(7, {WORD})", self.offsets))
                    yield from _by_bucket(offsets, _OFFSETS, self.keys)
                for name in _TOLD:
                    found = duck.table(f"SELECT * FROM {name}")
                    if found.num_rows:
                        yield 0, _named(found, name)
            finally:
                duck.close()

    def gather(self, bucket: int, tables: Iterable[pa.Table], samples: Shown, bounds: Bounds) -> Findings:
        """What is found in one bucket."""
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

    def closely(self) -> Buckets:
        """The same for a look at values."""
        return replace(self, layout=replace(self.layout, closely=True))


def _bucketed(columns: str, table: str, hashed: str, buckets: int) -> str:
    return f"SELECT {columns}, (({hashed}) % {buckets})::INTEGER AS bucket FROM {table} ORDER BY bucket"


def _by_bucket(table: pa.Table, name: str, first: int) -> Iterator[tuple[int, pa.Table]]:
    """The table cut where its last column, the bucket, changes."""
    if not table.num_rows:
        return
    numbers = table.column("bucket").to_numpy()
    records = _named(table.drop_columns(["bucket"]), name)
    starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
    for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
        yield first + int(numbers[start]), records.slice(start, end - start)


def _named(table: pa.Table, name: str) -> pa.Table:
    return table.replace_schema_metadata({_TABLE: name.encode()})
