"""Puffin files: named blobs with a JSON footer, which Iceberg attaches to a snapshot as its statistics file.

Every Iceberg client knows that such a file belongs to the table, so expiry and orphan removal of any engine keep it as
long as its snapshot. The layout follows the Iceberg spec, "Puffin file format".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import zstandard
from pyiceberg.table import Table
from pyiceberg.table.puffin import MAGIC_BYTES, Footer, PuffinBlobMetadata, PuffinFile
from pyiceberg.table.statistics import StatisticsFile

from pipeline.errors import RefusedError, UnavailableError

_ZSTD: Final = "zstd"
_FLAGS: Final = bytes(4)
"""The footer is not compressed."""
_WIDTH: Final = 4
"""Bytes of the footer's length."""


@dataclass(frozen=True)
class Blob:
    """A blob: its type, its content, not compressed, and its properties."""

    type: str
    content: bytes
    properties: Mapping[str, str] = field(default_factory=dict)


def write_puffin(
    table: Table, location: str, blobs: Sequence[Blob], snapshot_id: int, sequence_number: int
) -> StatisticsFile:
    """Write ``blobs`` to a new Puffin file at ``location``; returns its entry for snapshot ``snapshot_id``.

    The entry lists no blob: PyIceberg refuses to load a table whose metadata names a type that it does not know.
    Readers of the file find all blobs in its footer.
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

    Raises RefusedError, which begins with ``subject``, when the file is gone or damaged; UnavailableError when the
    store does not answer.
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
