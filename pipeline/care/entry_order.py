"""Entries of manifests, put in order: by partition, then by the first offset of the file.

A million of them are a gigabyte, so beyond a limit they lie in a temporary file; memory holds what they are ordered by.
"""

from array import array
from collections.abc import Sequence
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pyiceberg.manifest import PartitionFieldSummary, construct_partition_summaries
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from pipeline.lake.manifest_entries import RawEntry

IN_MEMORY_BYTES: Final = 32 << 20
"""Entries beyond so many bytes lie on disk."""

Places = NDArray[np.intp]


class EntryOrder:
    """The entries of one partition spec; a context manager, because of its temporary file.

    ``fields`` are places in the partition, the first one to order by first; ``offset`` is the field id of the offsets.
    """

    def __init__(self, fields: Sequence[int], offset: int | None) -> None:
        self._fields = fields
        self._offset = offset
        self._spool = SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115  # closed with this object
        self._starts = array("q", [0])
        self._records = array("q")
        self._sequence_numbers = array("q")
        self._offsets = array("q")
        self._values: list[dict[Any, int]] = [{} for _ in fields]
        """The values of each field of the partition, numbered as they came."""
        self._codes = [array("q") for _ in fields]

    def __enter__(self) -> "EntryOrder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spool.close()

    def __len__(self) -> int:
        return len(self._records)

    def add(self, entry: RawEntry) -> None:
        """Add ``entry``; call it before ``order``."""
        self._spool.write(entry.content)
        self._starts.append(self._starts[-1] + len(entry.content))
        self._records.append(entry.records)
        self._sequence_numbers.append(entry.sequence_number)
        self._offsets.append(self._first_offset(entry))
        for value, known, codes in zip(entry.partition, self._values, self._codes, strict=True):
            codes.append(known.setdefault(value, len(known)))

    def order(self) -> Places:
        """The numbers of all entries, in order."""
        keys = [_ranks(self._values[field])[_numbers(self._codes[field])] for field in self._fields]
        # The last key counts most.
        return np.lexsort((_numbers(self._offsets), *reversed(keys)))

    def content(self, number: int) -> bytes:
        """The entry of this number."""
        self._spool.seek(self._starts[number])
        return self._spool.read(self._starts[number + 1] - self._starts[number])

    def records(self, chosen: Places) -> int:
        """Number of records in the files of the ``chosen`` entries."""
        return int(_numbers(self._records)[chosen].sum())

    def oldest(self, chosen: Places) -> int:
        """The lowest data sequence number of the ``chosen`` entries."""
        return int(_numbers(self._sequence_numbers)[chosen].min())

    def partitions(self, chosen: Places, spec: PartitionSpec, schema: Schema) -> list[PartitionFieldSummary]:
        """The bounds of the partitions of the ``chosen`` entries, as a manifest list holds them."""
        if not self._codes:
            return []
        values = [list(known) for known in self._values]
        distinct = np.unique(np.stack([_numbers(codes)[chosen] for codes in self._codes]), axis=1)
        records = [Record(*(own[code] for own, code in zip(values, codes, strict=True))) for codes in distinct.T]
        return construct_partition_summaries(spec, schema, records)

    def _first_offset(self, entry: RawEntry) -> int:
        bound = None if self._offset is None else entry.lower.get(self._offset)
        # An offset of type int has four bytes, of type long eight; both are little endian (Iceberg spec).
        return int.from_bytes(bound, "little", signed=True) if bound else 0


def _ranks(values: dict[Any, int]) -> NDArray[np.int64]:
    """The rank of each of the numbered ``values``; NULL comes first."""
    ranks = np.empty(len(values), dtype=np.int64)
    ordered = sorted(values, key=lambda value: (value is not None, value))
    ranks[[values[value] for value in ordered]] = np.arange(len(values))
    return ranks


def _numbers(column: "array[int]") -> NDArray[np.int64]:
    """``column`` as it is, without a copy."""
    return np.frombuffer(column, dtype=np.int64)
