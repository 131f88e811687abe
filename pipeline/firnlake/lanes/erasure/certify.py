"""Issues a certificate for a request once its records are erased from main and an exact search finds none (C30).

Certificates are the last step of maintenance, because they wait for snapshots to expire and for orphans to be deleted.
``verify`` repeats the search with the key itself.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from firnlake.engine.engine import Engine
from firnlake.engine.local import LocalEngine
from firnlake.errors import RefusedError
from firnlake.iceberg.branches import ERASURES
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.deleter import Finding, Kind
from firnlake.lanes.erasure.certificate import certificate, content_of, export, is_intact
from firnlake.lanes.erasure.history import expires_ms, older_snapshots, vanished
from firnlake.lanes.erasure.memory import change_erasures, read_erasures
from firnlake.lanes.erasure.read import KeyMatcher, KnownKey
from firnlake.lanes.erasure.requests import Certificate, Erasures, digests_of
from firnlake.lanes.erasure.search import search
from firnlake.maintain.inventory import Blocker, Inventory, together
from firnlake.table.columns import ColumnRoles
from firnlake.table.policies import Policies
from firnlake.table.topic_partition import TopicPartition

_NO_VERSIONS: Final = "none: a file system keeps no older versions of deleted files"
_DECLARED: Final = "none, as the operator declares (firn.erase.object.versions = none)"


@dataclass(frozen=True)
class Certified:
    """The certificates that were ``issued``, and the blockers of the requests that got none, by request id."""

    issued: tuple[Certificate, ...] = ()
    blocked: Mapping[int, list[Blocker]] = field(default_factory=dict)


def uncertified(erasures: Erasures, vanished: Collection[TopicPartition]) -> list[int]:
    """Ids of the requests whose records are erased from main, and that have no certificate.

    Topic partitions in ``vanished`` count as erased, because main has no file of them.
    """
    return [
        request
        for request in erasures.ids
        if erasures.certificate_of(request) is None
        and all(erasures.is_done(row) or row.topic_partition in vanished for row in erasures.rows_of(request))
    ]


def certify(
    lake: Lake, identifier: str, now_ms: int, engine: Engine, requests: Collection[int] = (), *, quick: bool = False
) -> Certified:
    """Issue the missing certificates for those ``requests`` of table ``identifier`` whose records are erased from main.

    If ``requests`` is empty, this applies to all requests. With ``quick``, no data file is read for a request as long
    as snapshots from before its erasure have yet to expire, or something keeps a file that its erasure removed from
    main. Raises RefusedError for an unknown request, UnavailableError when catalog or store do not answer.
    """
    with lake.answering():
        table = lake.table(identifier)
        erasures = read_erasures(table)
        check_known(identifier, erasures.ids, requests)
        ids = uncertified(erasures, vanished(lake, table, identifier, erasures))
        ids = [one for one in ids if not requests or one in requests]
        blocked = _waiting(table, erasures, ids) if quick else {}
        inventory = Inventory.of(table) if blocked.keys() != set(ids) else None
        if quick and inventory:
            blocked |= _kept(inventory, erasures, [one for one in ids if one not in blocked])
        ids = [one for one in ids if one not in blocked]
        rows = [one for one in erasures.requests if one.id in ids]
        if not rows:
            return Certified((), blocked)
        wanted = KeyMatcher(erasures.secret, rows)
        result = search(table, identifier, wanted, engine, expires_ms=expires_ms(rows), inventory=inventory)
        versions = kept_versions(table, identifier)
        issued = []
        for request in ids:
            own = result.of(request) + ([versions] if isinstance(versions, Blocker) else [])
            if own or isinstance(versions, Blocker):
                blocked[request] = own
            else:
                issued.append(certificate(table, identifier, erasures, request, result, now_ms, versions))
        if issued:
            change_erasures(lake, identifier, lambda known: _with(known, issued))
        return Certified(tuple(issued), blocked)


def check_known(identifier: str, known: Sequence[int], requests: Collection[int]) -> None:
    """Raise RefusedError if one of ``requests`` is not among the ``known`` request ids of table ``identifier``."""
    for one in requests:
        if one not in known:
            allowed = f"1 to {known[-1]}" if known else "none, as nothing was requested"
            raise RefusedError(f"table {identifier} has no request {one}; allowed: {allowed}")


def _with(known: Erasures, issued: Collection[Certificate]) -> Erasures:
    fresh = tuple(one for one in issued if one not in known.certificates)
    return replace(known, certificates=(*known.certificates, *fresh))


def _waiting(table: Table, erasures: Erasures, ids: Collection[int]) -> dict[int, list[Blocker]]:
    """Those of the requests ``ids`` for which older snapshots have yet to expire; the snapshots are their blockers."""
    older = {one: [held for held in older_snapshots(table, erasures, one) if held.kind == "snapshot"] for one in ids}
    return {request: together(own) for request, own in older.items() if own}


def _kept(inventory: Inventory, erasures: Erasures, ids: Collection[int]) -> dict[int, list[Blocker]]:
    """Those of the requests ``ids`` for which a destroyed file still exists, with the blockers that keep the file."""
    blockers: dict[int, list[Blocker]] = {}
    left = [one for one in erasures.destroyed if one.path in inventory.data]
    for request in ids if left else ():
        rows = erasures.rows_of(request)
        places = {one.topic_partition for one in rows}
        for one in left:
            if one.topic_partition in places and one.through >= request:
                why = f"it still has {one.path}, which held records of the request"
                blockers.setdefault(request, []).extend(inventory.blockers(one.path, why, expires_ms(rows)))
    return {request: together(own) for request, own in blockers.items()}


def kept_versions(table: Table, identifier: str) -> str | Blocker:
    """Why no older versions of deleted files are kept, in a certificate's words; a blocker if some may be kept."""
    scheme, _, _ = PyArrowFileIO.parse_location(table.location(), table.io.properties)
    if scheme == "file":
        return _NO_VERSIONS
    if Policies.parse(identifier, table.properties).default.erase_object_versions == "none":
        return _DECLARED
    why = "the store may keep older versions of files that are deleted (versioning, soft delete, object lock)"
    lift = "firn.erase.object.versions = none, once the store keeps no older version of this table's files"
    return Blocker("object versions", table.location(), why, lift)


@dataclass(frozen=True)
class VerifiedCertificate:
    """What a search for one key found."""

    requests: tuple[int, ...]
    """Ids of the requests that name the key."""
    certificate: Certificate | None
    """The newest certificate for the key; None without one."""
    is_intact: bool
    """True when the certificate has not changed since it was issued."""
    blockers: tuple[Blocker, ...]
    """The files, snapshots and the like that hold, or may hold, records that the requests ask to erase."""
    landed_again: bool
    """True when the table holds records of the key with offsets past those of the requests."""
    landed_before: bool
    """True when the table already held such records when the certificate was issued."""

    @property
    def holds(self) -> bool:
        """True when there is a certificate and nothing contradicts it."""
        return self.certificate is not None and self.is_intact and not self.blockers


def verify(
    lake: Lake, identifier: str, key: Sequence[bytes], engine: Engine, topic: str | None = None
) -> VerifiedCertificate:
    """Search table ``identifier`` for ``key``, in ``topic`` or in all topics, as for a certificate.

    Raises RefusedError when no request names the key.
    """
    with lake.answering():
        table = lake.table(identifier)
        erasures = read_erasures(table)
        known = KnownKey.named(table, ColumnRoles.of(table, identifier), key)
        keys = pa.array([known.encoded], pa.large_binary())
        (digest,) = digests_of(keys, erasures.secret) if erasures.secret else (None,)
        rows = [one for one in erasures.requests if one.digest == digest and topic in (None, one.topic)]
        if not rows:
            raise RefusedError(f"table {identifier}: no request names this key; allowed: a key given to firn erase")
        result = search(table, identifier, KeyMatcher(erasures.secret, rows), engine, key=known)
        ids = sorted({one.id for one in rows})
        own = [certificate for one in ids if (certificate := erasures.certificate_of(one))]
        newest = max(own, key=lambda one: one.issued_ms, default=None)
        intact = newest is not None and is_intact(newest)
        told = content_of(newest)["landed_again"] if newest and intact else []
        blockers = {blocker: None for one in ids for blocker in result.of(one)}
        again = bool(result.newer)
        return VerifiedCertificate(
            tuple(ids), newest, intact, tuple(blockers), again, again and rows[0].digest.hex() in told
        )


def certificates(lake: Lake, identifier: str, now_ms: int, *, issue: bool) -> list[Finding]:
    """One finding for each uncertified request of table ``identifier`` whose records are erased from main.

    With ``issue``, the table is searched, and each request of which no record is found gets a certificate. The search
    waits until no snapshot has the files that held the records. Raises UnavailableError when catalog or store do not
    answer.
    """
    table = lake.table(identifier)
    if ERASURES not in table.metadata.refs:
        return []
    try:
        if not issue:
            known = read_erasures(table)
            return [
                _finding(request, "its records are erased from main; a maintenance run searches the table for them")
                for request in uncertified(known, vanished(lake, table, identifier, known))
            ]
        done = certify(lake, identifier, now_ms, LocalEngine(), quick=True)
    except RefusedError as error:
        return [Finding.of_error(Kind.CERTIFICATE, identifier, error)]
    written = export(lake, identifier, done.issued)
    return [
        *(_finding(request, f"issued: {path}") for request, path in written.items()),
        *(_finding(request, "; ".join(map(str, own))) for request, own in done.blocked.items()),
    ]


def _finding(request: int, reason: str) -> Finding:
    return Finding(Kind.CERTIFICATE, f"request {request}", goes=False, reason=reason, files=0)
