"""Requests to erase keys, and all that is known of each (C30).

A request is a document that never changes. It lies in the warehouse, in
``<location>/metadata/_firn/<table UUID>/erasures/``, and so does everything that is known of it, in files that never
change either:

- ``<request>.json``: the request, which names keys by their digests only;
- ``<request>.<name>.reads.json``: files that were read for it, and what was found in them. Files never change, so what
  was found in a file, by path and length, is true for ever and in every history of the table;
- ``<request>.certificate.json``: its certificate;
- ``<request>.withdrawn``: says that the request does not count, because the commit that should make it failed.

The commit that makes a request gives main a newer snapshot, so whatever was planned without the request was planned on
an older one.
"""

import re
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.transforms import BucketTransform, VoidTransform

from firnlake.clock import exact_span
from firnlake.errors import RefusedError, UnavailableError
from firnlake.iceberg.branches import MAX_SNAPSHOT_AGE, at_snapshot, max_snapshot_age
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import BranchChange
from firnlake.iceberg.commit import commit_changes
from firnlake.iceberg.files import (
    ERASURES_FOLDER,
    OWN_FOLDER,
    FrozenModel,
    data_folder,
    files_in,
    job_of,
    metadata_folder,
    store,
    write_whole,
)
from firnlake.iceberg.keys import Flags
from firnlake.lanes.erasure.digests import digests, digests_of
from firnlake.table.columns import ColumnRoles
from firnlake.table.manifest_reader import ManifestCache, read
from firnlake.table.policy import DAY_MS, LONG_MAX, Policies
from firnlake.table.reached import Contents
from firnlake.table.segment import TopicPartition
from firnlake_expectations.wording import count

DOCUMENT: Final = re.compile(
    rf"(?:.*/)?{OWN_FOLDER}/[0-9a-f-]{{36}}/{ERASURES_FOLDER}/([0-9a-f]{{32}})\.(?:[0-9a-f]+\.(?=reads))?((?:certificate\.|reads\.)?json|withdrawn)"
)
"""Locations of the documents of requests, of any table."""
_WAIT_MS: Final = 3_600_000
"""Longest time, in milliseconds, that a request waits for other requests, so that one reading serves all of them."""
_SHARE: Final = 4
"""A request waits no longer than the time between the request and its deadline, divided by this number."""
_WITHIN_MS: Final = 30 * DAY_MS
"""Time, in milliseconds, that a request allows for the erasure unless it says otherwise."""
_LONGEST_MS: Final = 36_525 * DAY_MS
"""Longest time that a request may allow for the erasure, in milliseconds: a hundred years."""
_SHOWN: Final = 20
"""Maximum number of topics that a message names."""
_GC: Final = "gc.enabled"


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


@dataclass
class Read:
    """The keys of a request that were found in a file, by their positions in the request. Offsets decide; the sequence
    number does not."""

    path: str
    bytes: int
    searched: bool = False
    """True if a search has read the file, whatever lane `erase` says of it."""
    found: set[int] = field(default_factory=set)
    """The keys of records below the log end; in a file without offsets, of all records."""
    lowest: int = -1
    """Lowest offset of these records; -1 without any, or without offsets."""
    newer: set[int] = field(default_factory=set)
    """The keys of records at or past the log end."""

    def add(self, position: int, offset: int, log_end: int) -> bool:
        """Add the key at ``position``, of a record at ``offset`` (-1 if nothing tells it); True if that is below the
        log end."""
        if offset >= log_end:
            self.newer.add(position)
            return False
        self.found.add(position)
        self.lowest = offset if self.lowest < 0 else min(self.lowest, offset)
        return True


class RequestedKeys:
    """The keys of some requests of one table, to be found among records. Tasks contain it, so it is picklable."""

    def __init__(self, table_uuid: str, requests: Sequence[Request]) -> None:
        self._table_uuid = table_uuid
        self._ends = [(request.topic, dict(request.log_ends)) for request in requests]
        self._named: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
        for index, request in enumerate(requests):
            for position, digest in enumerate(request.digests):
                self._named[bytes.fromhex(digest)].append((index, position))

    def reads(self, path: str, size: int, *, searched: bool = False) -> list[Read]:
        """For each request, what is found in the file at ``path``, of ``size`` bytes, before it is read."""
        return [Read(path, size, searched) for _ in self._ends]

    def count(
        self,
        reads: Sequence[Read],
        keys: pa.Array,
        offsets: NDArray[np.int64] | None,
        owner: TopicPartition | None,
    ) -> Flags:
        """Add the keys of records to ``reads``; returns flags of the records that some request covers.

        ``keys`` (`digests.key_bytes`) and ``offsets`` are those of the records; without ``offsets`` and ``owner``, the
        topic partition of all records, each record of a requested key is covered.
        """
        covered = np.zeros(len(keys), np.bool_)
        encoded = pc.dictionary_encode(keys)
        digested = enumerate(digests(encoded.dictionary, self._table_uuid))
        named = {code: self._named[digest] for code, digest in digested if digest in self._named}
        if not named:
            return covered
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        (rows,) = np.nonzero(np.isin(codes, list(named)))
        for row, code in zip(rows.tolist(), codes[rows].tolist(), strict=True):
            offset = -1 if offsets is None else int(offsets[row])
            for index, position in named[code]:
                topic, ends = self._ends[index]
                if owner is None or owner.topic == topic:
                    end = ends.get(owner.partition, 0) if owner else 0
                    covered[row] |= reads[index].add(position, offset, end)
        return covered


class _Reads(FrozenModel):
    """A document that says what was found in files that were read for one request."""

    files: tuple[Read, ...]
    served: Mapping[int, int]
    """The partitions of which no live segment held a covered record, with the sequence number of main's snapshot of
    which that is true."""


@dataclass(frozen=True)
class Erasure:
    """A request with what is known of it."""

    request: Request
    reads: dict[str, Read]
    """The files that were read, by path; a search adds to them."""
    served: Mapping[int, int]
    """By partition, the highest sequence number of main at which no live segment held a covered record."""
    certificate: Mapping[str, Any] | None
    """The document of the certificate; None before it is issued."""
    problem: str = ""
    """Why nobody can look for the keys in the table any more; empty if one can."""

    def read(self, path: str, size: int) -> Read | None:
        """The reading of the file at ``path``, of ``size`` bytes; None if nobody has read it."""
        read = self.reads.get(path)
        return read if read is not None and read.bytes == size else None

    def covered(self, path: str, sequence_number: int) -> Set[int] | None:
        """The keys of records in the file at ``path`` that the request covers; None if nobody has read the file.

        ``sequence_number`` is the file's; 0 if nothing tells it.
        """
        if (read := self.reads.get(path)) is None:
            return None
        return read.found if sequence_number > self.request.sequence_number else read.found | read.newer


# What is known of requests.


_Written: TypeAlias = tuple[str, int, int | None]
"""Location of a document, its bytes, and the time when it was written, if the store tells it (epoch milliseconds)."""


def erasures_of(table: Table) -> tuple[Erasure, ...]:
    """The requests of ``table`` with what is known of them, the oldest first.

    Raises RefusedError when a request is lost or unreadable, UnavailableError when the store does not answer.
    """
    folder = _folder(table)
    files, path = store(table, folder)
    listed: dict[str, dict[str, list[_Written]]] = defaultdict(lambda: defaultdict(list))
    try:
        for file in files_in(files, path, recursive=False):
            if match := DOCUMENT.fullmatch(file.path):
                location = f"{folder}/{file.path.rpartition('/')[2]}"
                listed[match[1]][match[2]].append((location, file.bytes, file.written_ms))
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


def _erasure(table: Table, request_id: str, kinds: Mapping[str, Sequence[_Written]]) -> Erasure:
    if "json" not in kinds:
        raise RefusedError(
            f"table {'.'.join(table.name())}: request {request_id} to erase keys is lost; allowed: its document "
            f"{_folder(table)}/{request_id}.json (without it, delete all files of that name, and ask again)"
        )
    (request, *_), parts, certificates = (
        [_document(table, kind, written) for written in kinds.get(kind, ())] for kind in _DOCUMENTS
    )
    # Of two readings of a file, that of a search counts.
    files = sorted((file for part in parts for file in part.files), key=lambda file: file.searched)
    reads = {file.path: file for file in files}
    served = dict(sorted((item for part in parts for item in part.served.items()), key=lambda item: item[1]))
    same = request.key_ids == key_ids(table)
    problem = "" if same else f"the table has another key than when the keys of request {request_id} were requested"
    return Erasure(request, reads, served, certificates[0] if certificates else None, problem)


def key_ids(table: Table) -> tuple[int, ...]:
    """The field ids of the key's columns; empty if the table does not have these columns any more."""
    try:
        columns = ColumnRoles.named(table, ".".join(table.name()))
        return tuple(table.schema().find_field(name).field_id for name in columns.key)
    except (RefusedError, ValueError):
        return ()


_DOCUMENTS: Final[Mapping[str, TypeAdapter[Any]]] = {
    "json": TypeAdapter(Request),
    "reads.json": TypeAdapter(_Reads),
    "certificate.json": TypeAdapter(dict[str, Any]),
}
_parsed: dict[_Written, Any] = {}
"""What each document says: Firn never changes a document, so a process reads each of them once."""


def _document(table: Table, kind: str, written: _Written) -> Any:
    location, *_ = written
    if written not in _parsed:
        try:
            with table.io.new_input(location).open() as stream:
                _parsed[written] = _DOCUMENTS[kind].validate_json(stream.read())
        except OSError as error:
            raise UnavailableError(f"{location} can't be read: {error}") from error
        except ValidationError as error:
            if kind == "reads.json":  # then its files are read again
                return _Reads(files=(), served={})
            reason = error.errors()[0]["msg"]
            raise RefusedError(
                f"{location} is not readable: {reason}; allowed: the document as Firn wrote it"
            ) from error
    return _parsed[written]


def write_reads(table: Table, request_id: str, files: Sequence[Read], served: Mapping[int, int] | None = None) -> None:
    """Write down what was found in ``files``, and which partitions are ``served`` (`_Reads`)."""
    if files or served:
        document = _Reads(files=tuple(files), served=served or {}).model_dump_json(exclude_defaults=True)
        write(table, request_id, f"{uuid.uuid4().hex}.reads.json", document)


def write(table: Table, request_id: str, kind: str, document: str) -> None:
    """Write a document of a request; its name ends in ``kind``, such as `certificate.json`."""
    write_whole(table, f"{_folder(table)}/{request_id}.{kind}", document.encode())


# Asking.


def ask(
    lake: Lake,
    identifier: str,
    keys: Sequence[Sequence[bytes]],
    now_ms: int,
    topic: str | None = None,
    within_ms: int | None = None,
) -> Request:
    """Request that ``keys``, each named by the values of its columns, are erased from ``topic`` of a table.

    Without ``topic``, the table must have only one topic. Without ``within_ms``, Firn has 30 days. A key that the table
    has never held is no error. Raises RefusedError for a key that does not fit the table, for an unknown topic, and for
    what can't be kept: a table that is partitioned by its key, or a time before which the table's older snapshots do
    not expire.
    """
    table = lake.table(identifier)
    columns = ColumnRoles.of(table, identifier)
    if shown := key_fields(table, table.spec()):
        raise RefusedError(
            f"table {identifier} is partitioned by its key ({', '.join(shown)}), so paths and manifests show keys; "
            "allowed: a table that is not partitioned by its key (adopt another key, or change the partitions)"
        )
    named = tuple(dict.fromkeys(digests_of(table, columns, keys)))
    expires = Policies.parse(identifier, table.properties).default.erase_history == "expire"
    within_ms = _WITHIN_MS if within_ms is None else within_ms
    _check_time(table, identifier, within_ms, expires)
    tried: list[Request] = []

    def withdraw() -> None:
        # Others may have read the document, so it stays.
        if tried:
            write(table, tried[-1].id, "withdrawn", "withdrawn\n")

    def changes(current: Table) -> Mapping[str, BranchChange]:
        """Write the request, and then give main a newer snapshot."""
        withdraw()
        asked, log_ends = _log_ends(lake, current, identifier, topic)
        request = Request(
            id=uuid.uuid4().hex,
            table_uuid=str(table.metadata.table_uuid),
            topic=asked,
            log_ends=log_ends,
            sequence_number=current.metadata.next_sequence_number() - 1,
            requested_ms=now_ms,
            deadline_ms=now_ms + within_ms,
            expires_history=expires,
            key_ids=key_ids(table),
            digests=named,
            outside=_outside(current),
        )
        tried.append(request)
        write(current, request.id, "json", request.model_dump_json())
        return {MAIN_BRANCH: BranchChange()}

    try:
        commit_changes(lake, identifier, changes)
    except RefusedError:
        withdraw()
        raise
    return tried[-1]


def key_fields(table: Table, spec: PartitionSpec) -> list[str]:
    """Names of the partition fields of ``spec`` that show values of key columns.

    A bucket's number shows nothing that many other keys do not share.
    """
    keys, harmless = key_ids(table), (VoidTransform, BucketTransform)
    return [part.name for part in spec.fields if part.source_id in keys and not isinstance(part.transform, harmless)]


def _check_time(table: Table, identifier: str, within_ms: int, expires: bool) -> None:
    if not 0 < within_ms <= _LONGEST_MS:
        raise RefusedError(
            f"table {identifier}: {within_ms} ms is not a valid time for an erasure; allowed: 1 to {_LONGEST_MS} ms"
        )
    if not expires and within_ms <= (age := history_ms(table)):
        raise RefusedError(
            f"table {identifier}: keys can't be erased within {exact_span(within_ms)}, because snapshots that hold "
            f"them stay for {exact_span(age)} ({MAX_SNAPSHOT_AGE}); allowed: a longer time, a lower age, or "
            "firn.erase.history=expire"
        )
    if table.properties.get(_GC, "true").strip().lower() == "false":
        raise RefusedError(
            f"table {identifier}: keys can't be erased, because property {_GC} is false, so older files stay for ever; "
            "allowed: true"
        )


def history_ms(table: Table) -> int:
    """The age, in milliseconds, at which a snapshot of main expires."""
    main = table.metadata.refs.get(MAIN_BRANCH)
    age = main.max_snapshot_age_ms if main else None
    return max_snapshot_age(table.properties) if age is None else age


def _log_ends(lake: Lake, table: Table, identifier: str, wanted: str | None) -> tuple[str, dict[int, int]]:
    """The requested topic, and for each partition the last offset in any branch or tag, plus 1."""
    ends: dict[TopicPartition, int] = {}
    for snapshot_id in {ref.snapshot_id for ref in table.metadata.refs.values()}:
        cache = ManifestCache.of(lake) if snapshot_id == table.metadata.current_snapshot_id else None
        for owner, segments in read(at_snapshot(table, snapshot_id), identifier, cache=cache).items():
            for segment in segments:
                if segment.problem and segment.last_offset < 0:
                    raise RefusedError(
                        f"table {identifier}: the log end of {owner} is unknown: segment {segment.path} "
                        f"{segment.problem}"
                    )
                # No offset is past the highest one, so a request can't cover a record there.
                ends[owner] = max(ends.get(owner, 0), min(segment.last_offset + 1, LONG_MAX))
    topic = _topic({owner.topic for owner in ends}, identifier, wanted)
    return topic, {owner.partition: end for owner, end in sorted(ends.items()) if owner.topic == topic}


def _topic(topics: set[str], identifier: str, wanted: str | None) -> str:
    fitting = topics if wanted is None else topics & {wanted}
    if len(fitting) == 1:
        return next(iter(fitting))
    names = ", ".join(sorted(topics)[:_SHOWN]) + (f" and {len(topics) - _SHOWN} more" if len(topics) > _SHOWN else "")
    several = f"has {count(len(topics), 'topic')}, and none was named"
    found = several if wanted is None else f"holds no record of topic {wanted!r}"
    allowed = f"one of {names}" if names else "none, because the table is empty"
    raise RefusedError(f"table {identifier} {found}; allowed: {allowed}")


def _outside(table: Table) -> tuple[str, ...]:
    """Locations of the files that a snapshot of ``table`` names outside the folders that a search lists."""
    within, contents = tuple(f"{location}/" for location in locations_of(table)), Contents(table.io)
    unreadable: dict[str, str] = {}  # a search names them
    manifests = contents.manifests_of(table.metadata.snapshots, unreadable)
    named = {path for _, files in contents.files_in(manifests, unreadable) for path in files}
    return tuple(sorted(path for path in named if not path.startswith(within)))


def locations_of(table: Table) -> tuple[str, ...]:
    """The folders of ``table`` that belong to no other table: its location, and Firn's folders elsewhere."""
    location = table.location().rstrip("/")
    elsewhere = {data_folder(table), metadata_folder(table)}
    return location, *sorted(folder for folder in elsewhere if not folder.startswith(f"{location}/"))


def is_by_lane(path: str, erasure: Erasure) -> bool:
    """True when a lane wrote the file at ``path`` for the table of the request."""
    return f"/{OWN_FOLDER}/{erasure.request.table_uuid}/" in path and job_of(path) is not None
