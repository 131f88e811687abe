"""What a survey found out about the records of one segment: a bit per record and question, packed when it travels."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from pipeline.compact.latest_per_key import Flags


@dataclass(frozen=True)
class Marks:
    """The flags of a segment's records in file order, as ``outcome.Records`` has them.

    None where the answer is the same for all: no flag is set, but every record is ``newest``.
    """

    records: int
    newest: Flags | None = None
    has_older: Flags | None = None
    control: Flags | None = None
    aborted: Flags | None = None
    ended: Flags | None = None
    repeated: Flags | None = None

    @property
    def newest_count(self) -> int:
        """How many records are the newest of their key."""
        return self.records if self.newest is None else int(np.count_nonzero(self.newest))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled as compressed bits."""
        flags = {field.name: getattr(self, field.name) for field in fields(self)[1:]}
        packed = {name: _packed(own) for name, own in flags.items() if own is not None}
        return _unpacked, (self.records, packed)

    def merged(self, other: Self) -> "Marks":
        """The marks of two surveys that each looked at some of the records: a flag is set when one says so."""
        flags = {
            field.name: _either(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)[1:]
        }
        return Marks(self.records, **flags)


def _either(one: Flags | None, other: Flags | None) -> Flags | None:
    if one is None or other is None:
        return other if one is None else one
    return one | other


def _packed(flags: Flags) -> bytes:
    return zlib.compress(np.packbits(flags).tobytes(), level=1)


def _unpacked(records: int, packed: Mapping[str, bytes]) -> Marks:
    return Marks(
        records,
        **{
            name: np.unpackbits(np.frombuffer(zlib.decompress(bits), dtype=np.uint8), count=records).astype(np.bool_)
            for name, bits in packed.items()
        },
    )
