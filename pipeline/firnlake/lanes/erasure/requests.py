"""Requests to erase keys, and all that is known of each (C30).

A request is a document that never changes. It lies in the warehouse, in
``<location>/metadata/_firn/<table UUID>/erasures/``, and so does everything that is known of it, in files that never
change either:

- ``<request>.json``: the request, which names keys by their digests only;
- ``<request>.<name>.reads.json``: files that were read for it, and what was found in them (module ``reads``);
- ``<request>.certificate.json``: its certificate;
- ``<request>.withdrawn``: says that the request does not count, because the commit that should make it failed.

The commit that makes a request (module ``ask``) gives main a newer snapshot, so whatever was planned without the
request was planned on an older one.
"""

import re
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError
from pyiceberg.table import Table

from firnlake.errors import RefusedError, UnavailableError
from firnlake.iceberg.files import OWN_FOLDER, FrozenModel, files_in, store, write_whole
from firnlake.lanes.erasure.reads import Read, Reads
from firnlake.table.columns import ColumnRoles

ERASURES_FOLDER: Final = "erasures"
"""Name of the folder of requests in Firn's folder of a table's metadata."""
_ID: Final = "[0-9a-f]{32}"
DOCUMENT: Final = re.compile(
    rf"(?:.*/)?{OWN_FOLDER}/[0-9a-f-]{{36}}/{ERASURES_FOLDER}/({_ID})\.(?:(json)|(certificate)\.json|[0-9a-f]+\.(reads)\.json|(withdrawn))"
)
"""Locations of the documents of requests, of any table."""
_WAIT_MS: Final = 3_600_000
"""Longest time, in milliseconds, that a request waits for other requests, so that one reading serves all of them."""
_SHARE: Final = 4
"""A request waits no longer than the time between the request and its deadline, divided by this number."""

T = TypeVar("T")


class Request(FrozenModel):
    """A request to erase keys of one topic of a table. Times are epoch milliseconds.

    It covers every record of these keys in every file, with one exception: a record at or past the log end of its
    partition, in a data file whose sequence number is above the request's, is newer than the request.
    """

    version: Literal[1] = 1
    id: str
    """A UUID, 32 hexadecimal digits."""
    table_uuid: str
    topic: str
    log_ends: Mapping[int, int]
    """By partition, the last offset in any branch or tag, plus 1."""
    sequence_number: int
    """The table's last sequence number when the request was made."""
    requested_ms: int
    deadline_ms: int
    expires_history: bool
    """True when older snapshots expire for the request, whatever `history.expire.*` says."""
    key_ids: tuple[int, ...]
    """The field ids of the key's columns."""
    digests: tuple[str, ...]
    """The digests of the keys (module ``digests``), in hexadecimal, in the order in which the keys were named."""
    outside: tuple[str, ...] = ()
    """Locations of the files that a snapshot named at the time of the request, and that no listing of the table's
    folders shows."""

    def log_end(self, partition: int) -> int:
        """The log end of ``partition`` at the time of the request; 0 if it held no record."""
        return self.log_ends.get(partition, 0)

    @property
    def due_ms(self) -> int:
        """The time from which lane `erase` serves the request."""
        return self.requested_ms + min(_WAIT_MS, (self.deadline_ms - self.requested_ms) // _SHARE)

    @property
    def history_expires_ms(self) -> int | None:
        """The time from which older snapshots expire for the request, half-way to the deadline; None if they do not."""
        return (self.requested_ms + self.deadline_ms) // 2 if self.expires_history else None


@dataclass(frozen=True)
class Erasure:
    """A request with what is known of it."""

    request: Request
    reads: Mapping[tuple[str, int], Read]
    """What was found in files, by path and length in bytes."""
    served: Mapping[int, int]
    """By partition, the highest sequence number of main at which no live segment held a covered record."""
    certificate: Mapping[str, Any] | None
    """The document of the certificate; None before it is issued."""
    problem: str = ""
    """Why nobody can look for the keys in the table any more; empty if one can."""

    def found_in(self, read: Read, sequence_number: int | None) -> int:
        """Number of records in a file that the request covers, by what was ``read`` of it.

        ``sequence_number`` is the file's; None if nothing tells it.
        """
        later = sequence_number is not None and sequence_number > self.request.sequence_number
        return read.records if later else read.records + read.newer_records


def erasures_of(table: Table) -> tuple[Erasure, ...]:
    """The requests of ``table`` with what is known of them, the oldest first.

    Raises RefusedError when a request is lost or unreadable, UnavailableError when the store does not answer.
    """
    folder = _folder(table)
    files, path = store(table, folder)
    listed: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    try:
        for file in files_in(files, path, recursive=False):
            if match := DOCUMENT.fullmatch(file.path):
                kind = match.group(match.lastindex or 0)
                listed[match[1]][kind].append(f"{folder}/{file.path.rpartition('/')[2]}")
    except OSError as error:
        raise UnavailableError(f"{folder} can't be listed: {error}") from error
    counting = {request_id: kinds for request_id, kinds in listed.items() if "withdrawn" not in kinds}
    erasures = [_erasure(table, request_id, kinds) for request_id, kinds in counting.items()]
    return tuple(sorted(erasures, key=lambda erasure: (erasure.request.requested_ms, erasure.request.id)))


def open_requests(table: Table) -> tuple[Erasure, ...]:
    """The requests of ``table`` without a certificate; raises the errors of ``erasures_of``."""
    return tuple(erasure for erasure in erasures_of(table) if erasure.certificate is None)


def _folder(table: Table) -> str:
    # Requests outlive a change of `write.metadata.path`.
    location = table.location().rstrip("/")
    return f"{location}/metadata/{OWN_FOLDER}/{table.metadata.table_uuid}/{ERASURES_FOLDER}"


def key_ids(table: Table) -> tuple[int, ...]:
    """The field ids of the key's columns; empty if the table does not have these columns any more."""
    try:
        columns = ColumnRoles.named(table, ".".join(table.name()))
        return tuple(table.schema().find_field(name).field_id for name in columns.key)
    except (RefusedError, ValueError):
        return ()


def _erasure(table: Table, request_id: str, kinds: Mapping[str, Sequence[str]]) -> Erasure:
    if "json" not in kinds:
        raise RefusedError(
            f"table {'.'.join(table.name())}: request {request_id} to erase keys is lost; allowed: its document "
            f"{_folder(table)}/{request_id}.json (without it, delete all files of that name, and ask again)"
        )
    request = _document(table, kinds["json"][0], Request.model_validate_json)
    parts = [_part(table, location) for location in kinds.get("reads", ())]
    # Of two readings of a file, that of a search counts.
    files = sorted((file for part in parts for file in part.files), key=lambda file: file.searched)
    served = dict(sorted((one for part in parts for one in part.served.items()), key=lambda one: one[1]))
    certificates = [_document(table, location, _CERTIFICATE.validate_json) for location in kinds.get("certificate", ())]
    known = {(file.path, file.bytes): file for file in files}
    same = request.key_ids == key_ids(table)
    problem = "" if same else f"the table has another key than when the keys of request {request_id} were requested"
    return Erasure(request, known, served, certificates[0] if certificates else None, problem)


_CERTIFICATE: Final = TypeAdapter(dict[str, Any])
_known: dict[str, Any] = {}
"""What each document says, by location: documents never change, so a process reads each of them once."""


def _document(table: Table, location: str, parse: Callable[[bytes], T]) -> T:
    if location not in _known:
        try:
            with table.io.new_input(location).open() as stream:
                content = stream.read()
        except OSError as error:
            raise UnavailableError(f"{location} can't be read: {error}") from error
        try:
            _known[location] = parse(content)
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
            raise RefusedError(
                f"{location} is not readable: {reason}; allowed: the document as Firn wrote it"
            ) from error
    known: T = _known[location]
    return known


def _part(table: Table, location: str) -> Reads:
    """What ``location`` says was read; nothing if it is unreadable, as then the files are read again."""
    try:
        return _document(table, location, Reads.model_validate_json)
    except RefusedError:
        return Reads(files=(), served={})


def write_request(table: Table, request: Request) -> None:
    """Write the document of a new ``request``."""
    write_whole(table, f"{_folder(table)}/{request.id}.json", request.model_dump_json().encode())


def withdraw(table: Table, request_id: str) -> None:
    """Say that a request does not count. Its document stays, because others may have read it."""
    write_whole(table, f"{_folder(table)}/{request_id}.withdrawn", b"withdrawn\n")


def write_reads(table: Table, request_id: str, files: Sequence[Read], served: Mapping[int, int] | None = None) -> None:
    """Write down what was found in ``files``, and which partitions are ``served`` (`Reads`)."""
    if files or served:
        document = Reads(files=tuple(files), served=served or {}).model_dump_json(exclude_defaults=True)
        write_whole(table, f"{_folder(table)}/{request_id}.{uuid.uuid4().hex}.reads.json", document.encode())


def write_certificate(table: Table, request_id: str, document: str) -> None:
    """Write the certificate of a request that has none."""
    write_whole(table, f"{_folder(table)}/{request_id}.certificate.json", document.encode())
