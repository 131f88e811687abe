"""Creates the side branches of a table, and keeps the state of branches without data files.

The state of such a branch is stored in a Puffin file, which is the statistics file of the branch's newest snapshot. A
Puffin file consists of blobs and a JSON footer (Iceberg, "Puffin spec"). A blob holds the rows of a frozen dataclass as
an Arrow stream, with one column per field.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar

import pyarrow as pa
import zstandard
from pyiceberg.table import Table
from pyiceberg.table.puffin import MAGIC_BYTES, Footer, PuffinBlobMetadata, PuffinFile
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update import SetStatisticsUpdate, TableUpdate

from firnlake.errors import RefusedError, UnavailableError
from firnlake.iceberg.branch_snapshot import BranchChange, BranchSnapshot, SnapshotContents, place
from firnlake.iceberg.branches import SIDE_BRANCHES, newest_of
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import Change
from firnlake.iceberg.commit import commit_changes
from firnlake.iceberg.manifests import Manifests

_ZSTD: Final = "zstd"
_FLAGS: Final = bytes(4)
"""Flags of a footer that is not compressed."""
_WIDTH: Final = 4
"""Number of bytes of the field for the footer's length."""


@dataclass(frozen=True)
class Blob:
    """A blob: its type, its uncompressed content, and its properties."""

    type: str
    content: bytes
    properties: Mapping[str, str] = field(default_factory=dict)


def write_puffin(
    table: Table, location: str, blobs: Sequence[Blob], snapshot_id: int, sequence_number: int
) -> StatisticsFile:
    """Write ``blobs`` to a new Puffin file at ``location``; return the file's entry for the table metadata.

    The entry lists no blobs, because PyIceberg refuses to load a table whose metadata names an unknown blob type.
    Readers find the blobs in the footer of the file.
    """
    body = bytearray(MAGIC_BYTES)
    listed = []
    for blob in blobs:
        packed = zstandard.ZstdCompressor(write_checksum=True).compress(blob.content)
        listed.append(
            PuffinBlobMetadata.model_validate(
                {
                    "type": blob.type,
                    "fields": [],
                    "snapshot-id": snapshot_id,
                    "sequence-number": sequence_number,
                    "offset": len(body),
                    "length": len(packed),
                    "compression-codec": _ZSTD,
                    "properties": dict(blob.properties),
                }
            )
        )
        body += packed
    payload = Footer(blobs=listed).model_dump_json(by_alias=True).encode()
    footer = MAGIC_BYTES + payload + len(payload).to_bytes(_WIDTH, "little", signed=True) + _FLAGS + MAGIC_BYTES
    with table.io.new_output(location).create() as stream:
        stream.write(bytes(body) + footer)
    return StatisticsFile.model_validate(
        {
            "snapshot-id": snapshot_id,
            "statistics-path": location,
            "file-size-in-bytes": len(body) + len(footer),
            "file-footer-size-in-bytes": len(footer),
            "blob-metadata": [],
        }
    )


def read_puffin(table: Table, location: str, subject: str) -> list[Blob]:
    """The blobs of the Puffin file at ``location``.

    Raises RefusedError when the file is gone or damaged, UnavailableError when the store does not answer. Messages
    begin with ``subject``.
    """
    try:
        with table.io.new_input(location).open() as stream:
            content = stream.read()
    except FileNotFoundError as error:
        raise RefusedError(f"{subject}: {location} is gone; allowed: the file as Firn wrote it") from error
    except OSError as error:
        raise UnavailableError(f"{subject}: {location} can't be read: {error}") from error
    try:
        file = PuffinFile(content)
        return [Blob(one.type, file.get_blob_payload(one), one.properties) for one in file.footer.blobs]
    except (ValueError, IndexError, zstandard.ZstdError) as error:
        reason = str(error).splitlines()[0]
        raise RefusedError(f"{subject}: {location} is damaged: {reason}; allowed: the file as Firn wrote it") from error


R = TypeVar("R")

_TYPES: Final[Mapping[Any, pa.DataType]] = {
    int: pa.int64(),
    str: pa.string(),
    bytes: pa.binary(),
    bool: pa.bool_(),
    int | None: pa.int64(),
}


def rows_as_bytes(kind: type[R], rows: Sequence[R]) -> bytes:
    """``rows`` as the content of a blob; the fields of ``kind`` are integers, texts, bytes or booleans."""
    schema = _schema(kind)
    columns = [pa.array([getattr(row, name) for row in rows], schema.field(name).type) for name in schema.names]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch(columns, schema=schema))
    return bytes(sink.getvalue())


def rows_of(kind: type[R], blob: Blob) -> tuple[R, ...]:
    """The rows in ``blob``. Raises KeyError, ValueError or an ArrowException if the blob has no rows of ``kind``."""
    table = pa.ipc.open_stream(blob.content).read_all().select(_schema(kind).names)
    if table.schema != _schema(kind):
        raise ValueError(f"{blob.type} has other columns than {', '.join(_schema(kind).names)}")
    return tuple(kind(*row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True))


def _schema(kind: type[Any]) -> pa.Schema:
    return pa.schema([pa.field(field.name, _TYPES[field.type]) for field in fields(kind)])


_SUFFIX: Final = ".puffin"


class BranchFile(BranchSnapshot):
    """The part of a commit that replaces the file of a branch. Each try writes a new file, from the branch's current
    state."""

    def __init__(self, name: str, snapshot_id: int, title: str, blobs: Callable[[Table, int], Sequence[Blob]]) -> None:
        """``blobs`` returns the new contents of the file, given the table and the sequence number of the commit's
        snapshot on main; it raises ConflictError when the change can't be made to the table."""
        super().__init__(name, snapshot_id)
        self._title = title
        self._blobs = blobs
        self._written: StatisticsFile | None = None

    def contents(self, target: Table, parent: Snapshot | None, manifests: Manifests) -> SnapshotContents:  # noqa: ARG002
        # The snapshot on main is the first one of the commit, so it has the next sequence number.
        blobs = self._blobs(target, target.metadata.next_sequence_number())
        location = place(target, f"{self._title}-{self.snapshot_id}-{uuid.uuid4()}{_SUFFIX}")
        self._written = write_puffin(target, location, blobs, self.snapshot_id, self.sequence_number)
        totals = Summary(operation=Operation.APPEND, **SnapshotSummaryCollector().build())
        return SnapshotContents([], [], update_snapshot_summaries(totals, parent.summary if parent else None))

    def updates(self, target: Table, snapshot: Snapshot) -> tuple[TableUpdate, ...]:
        """The updates that add ``snapshot`` and its statistics file, and move the branch to ``snapshot``."""
        return *super().updates(target, snapshot), SetStatisticsUpdate.model_validate({"statistics": self._written})


def file_of(table: Table, snapshot_id: int) -> str | None:
    """Location of the statistics file of snapshot ``snapshot_id``; None if the snapshot has no such file."""
    files = (one.statistics_path for one in table.metadata.statistics if one.snapshot_id == snapshot_id)
    return next(files, None)


def create_side_branches(lake: Lake, identifier: str) -> Table:
    """Create the missing side branches of table ``identifier``, empty, in one commit; return the table.

    Raises RefusedError when another tool uses the name of a side branch, and the errors of ``commit_changes``.
    """

    def missing(table: Table) -> Mapping[str, BranchChange]:
        return {name: Change() for name in SIDE_BRANCHES if newest_of(table, name) is None}

    return commit_changes(lake, identifier, missing).table
