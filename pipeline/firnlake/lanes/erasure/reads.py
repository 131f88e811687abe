"""What was found in the files that were read for a request to erase keys (C30).

Files never change, so what was found in a file, by path and length, is true for ever and in every history of the
table. It never says which key was found, only which of the request's keys, by their positions.
"""

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa
from pyarrow import ipc

_SERVED: Final = b"served"
_POSITIONS: Final = pa.list_(pa.int32())


class Read(NamedTuple):
    """What was found in one file for one request. Offsets decide alone; the file's sequence number is not looked at."""

    path: str
    bytes: int
    records: int = 0
    """Number of records of requested keys below the log end; in a file without offsets, of all such records."""
    lowest: int = -1
    """Lowest offset of these records; -1 without any, or without offsets."""
    newer_records: int = 0
    """Number of records of requested keys at or past the log end."""
    found: tuple[int, ...] = ()
    """Positions of the keys of ``records`` among the request's keys, sorted."""
    newer: tuple[int, ...] = ()
    """Positions of the keys of ``newer_records``, sorted."""
    searched: bool = False
    """True if a search has read the file, whatever lane `erase` says of it."""


_SCHEMA: Final = pa.schema(
    [
        ("path", pa.string()),
        ("bytes", pa.int64()),
        ("records", pa.int64()),
        ("lowest", pa.int64()),
        ("newer_records", pa.int64()),
        ("found", _POSITIONS),
        ("newer", _POSITIONS),
        ("searched", pa.bool_()),
    ]
)


@dataclass(frozen=True)
class Reads:
    """What was found in files, by path and length in bytes."""

    files: Mapping[tuple[str, int], Read] = field(default_factory=dict)
    served: Mapping[int, int] = field(default_factory=dict)
    """By partition, the highest sequence number of main at which no live segment held a covered record."""

    @classmethod
    def of(cls, parts: Iterable["Reads"]) -> "Reads":
        """All that ``parts`` say together."""
        files: dict[tuple[str, int], Read] = {}
        served: dict[int, int] = {}
        for part in parts:
            files.update({key: read for key, read in part.files.items() if read.searched or key not in files})
            for partition, number in part.served.items():
                served[partition] = max(number, served.get(partition, number))
        return cls(files, served)

    def encoded(self) -> bytes:
        """As the content of an Arrow file."""
        columns = zip(*self.files.values(), strict=True) if self.files else [()] * len(_SCHEMA)
        arrays = [pa.array(column, kind.type) for column, kind in zip(columns, _SCHEMA, strict=True)]
        schema = _SCHEMA.with_metadata({_SERVED: json.dumps(dict(self.served)).encode()})
        sink = io.BytesIO()
        with ipc.new_file(sink, schema) as writer:
            writer.write_batch(pa.record_batch(arrays, schema=schema))
        return sink.getvalue()

    @classmethod
    def parse(cls, content: bytes) -> "Reads":
        """The content of an Arrow file; raises ValueError or an ArrowException if it is not readable."""
        table = ipc.open_file(content).read_all()
        if not table.schema.equals(_SCHEMA):
            raise ValueError("it has other columns")
        columns = [column.to_pylist() for column in table.columns]
        rows = (
            Read(path, size, records, lowest, newer_records, tuple(found), tuple(newer), searched)
            for path, size, records, lowest, newer_records, found, newer, searched in zip(*columns, strict=True)
        )
        served = json.loads((table.schema.metadata or {}).get(_SERVED, b"{}"))
        return cls({(row.path, row.bytes): row for row in rows}, {int(key): int(one) for key, one in served.items()})


class Tally:
    """Counts the records of requested keys in one file, for one request."""

    def __init__(self) -> None:
        self._records = 0
        self._lowest = -1
        self._newer_records = 0
        self._found: set[int] = set()
        self._newer: set[int] = set()

    def add(self, position: int, offset: int | None, log_end: int | None) -> bool:
        """Count a record of the key at ``position``; returns True if it is below the log end.

        ``offset`` or ``log_end`` is None if nothing tells it; then the record counts as below the log end.
        """
        if offset is not None and log_end is not None and offset >= log_end:
            self._newer_records += 1
            self._newer.add(position)
            return False
        self._records += 1
        self._found.add(position)
        if offset is not None:
            self._lowest = offset if self._lowest < 0 else min(self._lowest, offset)
        return True

    def read(self, path: str, size: int, *, searched: bool = False) -> Read:
        """What was found in the file at ``path``, which has ``size`` bytes."""
        found, newer = tuple(sorted(self._found)), tuple(sorted(self._newer))
        return Read(path, size, self._records, self._lowest, self._newer_records, found, newer, searched)
