"""The file that holds a table's erasures: a Puffin file, the statistics file of the head of branch `firn_erasures`.

Rows are Arrow streams and certificates JSON, each kind a blob of its own.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyiceberg.table import Table

from pipeline.erase.requests import Certificate, Destroyed, Erasures, Looked, Progress, Request
from pipeline.errors import RefusedError
from pipeline.lake.branches import ERASURES
from pipeline.lake.puffin import Blob, read_puffin

REQUESTS: Final = "firn-erasure-requests-v1"
PROGRESS: Final = "firn-erasure-progress-v1"
DESTROYED: Final = "firn-erasure-destroyed-v1"
CERTIFICATES: Final = "firn-certificates-v1"
LOOKED: Final = "firn-erasure-looked-v1"
"""Only in tables whose tombstones are requests."""
_KEY_OF_DIGESTS: Final = "secret"
"""Property of the blob of requests: the secret in hexadecimal."""
_TYPES: Final[Mapping[Any, pa.DataType]] = {
    int: pa.int64(),
    str: pa.string(),
    bytes: pa.binary(),
    bool: pa.bool_(),
    int | None: pa.int64(),
}

R = TypeVar("R", Request, Progress, Destroyed, Looked)


def blobs_of(erasures: Erasures) -> list[Blob]:
    """The blobs that hold ``erasures``."""
    return [
        Blob(REQUESTS, _rows(Request, erasures.requests), {_KEY_OF_DIGESTS: erasures.secret.hex()}),
        Blob(PROGRESS, _rows(Progress, erasures.progress)),
        Blob(DESTROYED, _rows(Destroyed, erasures.destroyed)),
        Blob(CERTIFICATES, json.dumps([asdict(one) for one in erasures.certificates]).encode()),
        *([Blob(LOOKED, _rows(Looked, erasures.looked))] if erasures.looked else []),
    ]


def read_erasures(table: Table) -> Erasures:
    """The erasures of ``table``; empty when none was ever requested.

    Raises RefusedError when they are gone or unreadable: then nothing may count as erased. UnavailableError when the
    store does not answer.
    """
    location = location_of(table)
    return Erasures() if location is None else _read_file(table, location)


def read_erasures_at(table: Table, snapshot_id: int) -> Erasures:
    """The erasures as snapshot ``snapshot_id`` of branch `firn_erasures` holds them; raises as ``read_erasures``."""
    return _read_file(table, _location_at(table, snapshot_id))


def _read_file(table: Table, location: str) -> Erasures:
    subject = f"table {'.'.join(table.name())}: its requests to erase keys"
    blobs = {one.type: one for one in read_puffin(table, location, subject)}
    try:
        return Erasures(
            bytes.fromhex(blobs[REQUESTS].properties[_KEY_OF_DIGESTS]),
            _read(Request, blobs[REQUESTS]),
            _read(Progress, blobs[PROGRESS]),
            _read(Destroyed, blobs[DESTROYED]),
            tuple(Certificate(**one) for one in json.loads(blobs[CERTIFICATES].content)),
            _read(Looked, blobs[LOOKED]) if LOOKED in blobs else (),
        )
    except (KeyError, ValueError, TypeError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise RefusedError(f"{subject} in {location} are not readable: {reason}") from error


class ReadOnce:
    """Reads a table's erasures once per file: what a commit checks and what it builds on is the same, in every try."""

    def __init__(self) -> None:
        self._held: tuple[str | None, Erasures] | None = None

    def of(self, table: Table) -> Erasures:
        """The erasures of ``table``; raises as ``read_erasures`` does."""
        location = location_of(table)
        if self._held is None or self._held[0] != location:
            self._held = location, read_erasures(table)
        return self._held[1]


def location_of(table: Table) -> str | None:
    """Location of the file that holds the erasures of ``table``; None when none was ever requested.

    Raises RefusedError when another tool took the file off its snapshot.
    """
    ref = table.metadata.refs.get(ERASURES)
    return None if ref is None else _location_at(table, ref.snapshot_id)


def _location_at(table: Table, snapshot_id: int) -> str:
    for one in table.metadata.statistics:
        if one.snapshot_id == snapshot_id:
            return one.statistics_path
    raise RefusedError(
        f"table {'.'.join(table.name())}: snapshot {snapshot_id} of branch {ERASURES} has no statistics file any "
        "more, so the requests to erase keys are unknown; allowed: the file that Firn attached (drop the branch and "
        "request again)"
    )


def _rows(kind: type[R], rows: Sequence[R]) -> bytes:
    schema = _schema(kind)
    columns = [pa.array([getattr(row, name) for row in rows], schema.field(name).type) for name in schema.names]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch(columns, schema=schema))
    return bytes(sink.getvalue())


def _read(kind: type[R], blob: Blob) -> tuple[R, ...]:
    table = pa.ipc.open_stream(blob.content).read_all().select(_schema(kind).names)
    if table.schema != _schema(kind):
        raise ValueError(f"{blob.type} has other columns than {', '.join(_schema(kind).names)}")
    return tuple(kind(*row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True))


def _schema(kind: type[Any]) -> pa.Schema:
    return pa.schema([pa.field(field.name, _TYPES[field.type]) for field in fields(kind)])
