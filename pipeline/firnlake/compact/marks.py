"""Marks: the flags that a survey gives the records of one segment, packed as bits between tasks."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Self

import numpy as np

from firnlake.iceberg.keys import Flags


@dataclass(frozen=True)
class Marks:
    """The flags of a segment's records in file order, named as in ``keep_or_drop.Records``.

    A flag is None if it is the same for all records: true for ``newest``, false for every other flag.
    """

    records: int
    newest: Flags | None = None
    has_older: Flags | None = None
    control: Flags | None = None
    aborted: Flags | None = None
    ended: Flags | None = None
    repeated: Flags | None = None
    erased: Flags | None = None
    """Set by lane `erase` alone."""
    apart: Flags | None = None
    """True if not compared: no key, a control record, of an aborted transaction, or an extra copy. Such a record is not
    ``newest`` either."""

    @property
    def newest_count(self) -> int:
        """Number of records that are the newest of their key."""
        return self.records if self.newest is None else int(np.count_nonzero(self.newest))

    @property
    def superseded(self) -> Flags:
        """Flags of the compared records whose key has a newer compared record."""
        older = np.zeros(self.records, dtype=np.bool_) if self.newest is None else ~self.newest
        return older if self.apart is None else older & ~self.apart

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as compressed bits."""
        return PackedMarks.unpacked, (self.packed(),)

    def packed(self) -> "PackedMarks":
        """The same marks in at most an eighth of the memory."""
        packed = {name: _packed(own) for name, own in self._flags().items() if own is not None}
        return PackedMarks(self.records, packed)

    def part(self, start: int, records: int) -> "Marks":
        """The marks of ``records`` records from ``start`` on."""
        own = {name: None if held is None else held[start : start + records] for name, held in self._flags().items()}
        return Marks(records, **own)

    @classmethod
    def joined(cls, parts: "Sequence[Marks]") -> "Marks":
        """Concatenate the marks of consecutive records."""
        if len(parts) == 1:
            return parts[0]
        names = [one.name for one in fields(cls)[1:]]
        own = {
            name: _joined([(part.records, getattr(part, name)) for part in parts], name == "newest") for name in names
        }
        return cls(sum(part.records for part in parts), **own)

    def merged(self, other: Self) -> "Marks":
        """Merge the marks of two surveys that compared different records: a flag is set if either survey set it."""
        return Marks(self.records, **{name: _either(own, getattr(other, name)) for name, own in self._flags().items()})

    def _flags(self) -> dict[str, Flags | None]:
        return {one.name: getattr(self, one.name) for one in fields(self)[1:]}


@dataclass(frozen=True)
class PackedMarks:
    """Marks as compressed bits, by the name of their flag."""

    records: int
    bits: Mapping[str, bytes] = field(repr=False)

    def unpacked(self) -> Marks:
        return Marks(self.records, **{name: _unpacked(packed, self.records) for name, packed in self.bits.items()})


def _joined(parts: Sequence[tuple[int, Flags | None]], missing: bool) -> Flags | None:
    """Concatenate flags; a part without flags has the value ``missing`` for all of its records."""
    if all(flags is None for _, flags in parts):
        return None
    return np.concatenate([np.full(size, missing, dtype=np.bool_) if flags is None else flags for size, flags in parts])


def _either(one: Flags | None, other: Flags | None) -> Flags | None:
    if one is None or other is None:
        return other if one is None else one
    return one | other


def _packed(flags: Flags) -> bytes:
    return zlib.compress(np.packbits(flags).tobytes(), level=1)


def _unpacked(packed: bytes, records: int) -> Flags:
    bits = np.frombuffer(zlib.decompress(packed), dtype=np.uint8)
    return np.unpackbits(bits, count=records).astype(np.bool_)
