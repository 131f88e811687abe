"""The file that holds a table's erasures: a Puffin file, the statistics file of the head of branch `firn_erasures`.

Rows are Arrow streams and certificates JSON, each kind a blob of its own.
"""

import json
from dataclasses import asdict
from typing import Final

import pyarrow as pa
from pyiceberg.table import Table

from pipeline.erase.requests import Certificate, Destroyed, Erasures, Progress, Request
from pipeline.errors import RefusedError
from pipeline.lake.branch_file import location_at, location_on
from pipeline.lake.branches import ERASURES
from pipeline.lake.puffin import Blob, read_puffin
from pipeline.lake.typed_rows import rows_as_bytes, rows_of

REQUESTS: Final = "firn-erasure-requests-v1"
PROGRESS: Final = "firn-erasure-progress-v1"
DESTROYED: Final = "firn-erasure-destroyed-v1"
CERTIFICATES: Final = "firn-certificates-v1"
_KEY_OF_DIGESTS: Final = "secret"
"""Property of the blob of requests: the secret in hexadecimal."""
_LOST: Final = (
    "the requests to erase keys are unknown; allowed: the file that Firn attached (drop the branch and request again)"
)


def blobs_of(erasures: Erasures) -> list[Blob]:
    """The blobs that hold ``erasures``."""
    return [
        Blob(REQUESTS, rows_as_bytes(Request, erasures.requests), {_KEY_OF_DIGESTS: erasures.secret.hex()}),
        Blob(PROGRESS, rows_as_bytes(Progress, erasures.progress)),
        Blob(DESTROYED, rows_as_bytes(Destroyed, erasures.destroyed)),
        Blob(CERTIFICATES, json.dumps([asdict(one) for one in erasures.certificates]).encode()),
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
    return _read_file(table, location_at(table, ERASURES, snapshot_id, _LOST))


def _read_file(table: Table, location: str) -> Erasures:
    subject = f"table {'.'.join(table.name())}: its requests to erase keys"
    blobs = {one.type: one for one in read_puffin(table, location, subject)}
    try:
        return Erasures(
            bytes.fromhex(blobs[REQUESTS].properties[_KEY_OF_DIGESTS]),
            rows_of(Request, blobs[REQUESTS]),
            rows_of(Progress, blobs[PROGRESS]),
            rows_of(Destroyed, blobs[DESTROYED]),
            tuple(Certificate(**one) for one in json.loads(blobs[CERTIFICATES].content)),
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
    return location_on(table, ERASURES, _LOST)
