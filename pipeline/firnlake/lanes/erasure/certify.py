"""Issues a certificate for a request once a search of every file finds nothing that the request covers (C30).

Certificates are the last step of maintenance, because they wait for snapshots to expire and for orphans to be deleted.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from firnlake.clock import show_ms
from firnlake.engine.engine import Engine
from firnlake.engine.local import LocalEngine
from firnlake.errors import RefusedError
from firnlake.iceberg.branches import number_of_main
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.deleter import Finding, Kind
from firnlake.iceberg.files import DATA_PATH, METADATA_PATH
from firnlake.iceberg.snapshots import max_snapshot_age
from firnlake.lanes.erasure.certificate import certificate, export, is_intact
from firnlake.lanes.erasure.look import requested_of
from firnlake.lanes.erasure.requests import Erasure, erasures_of, open_requests, write_certificate
from firnlake.lanes.erasure.search import Problem, search
from firnlake.lanes.erasure.snapshot_files import OLDER
from firnlake.table.memory import removed_tombstones
from firnlake.table.policies import Policies
from firnlake.table.segment_cache import ManifestCache
from firnlake.table.segments import read
from firnlake.table.topic_partition import TopicPartition

_NO_VERSIONS: Final = "none: a file system keeps no older versions of deleted files"
_DECLARED: Final = "none, as the operator declares (firn.erase.object.versions = none)"


@dataclass(frozen=True)
class Certified:
    """The certificates that were ``issued``, now or before, and the problems of the other requests, by request id."""

    issued: tuple[Mapping[str, Any], ...] = ()
    blocked: Mapping[str, Sequence[Problem]] = field(default_factory=dict)


def certify(
    lake: Lake, identifier: str, now_ms: int, engine: Engine, requests: Collection[str] = (), *, quick: bool = False
) -> Certified:
    """Issue the missing certificates of those ``requests`` of table ``identifier``; of all requests if none is named.

    A named request that has a certificate already is searched for again, and the certificate stays as it is.
    With ``quick``, a request is not searched for before lane `erase` has served it and older snapshots have expired.
    Raises RefusedError for an unknown request, UnavailableError when catalog or store do not answer.
    """
    with lake.answering():
        table = lake.table(identifier)
        erasures = chosen(identifier, erasures_of(table), requests)
        erasures = [erasure for erasure in erasures if requests or erasure.certificate is None]
        blocked: dict[str, Sequence[Problem]] = {
            erasure.request.id: [problem] for erasure in erasures if (problem := _void(erasure))
        }
        if quick:
            older = {erasure.request.id: older_snapshots(table, erasure) for erasure in erasures}
            blocked |= {request_id: [problem] for request_id, problem in older.items() if problem}
            for request_id, owners in unserved(lake, table, identifier, erasures).items():
                blocked[request_id] = [_unserved(identifier, owner) for owner in owners]
        ready = [erasure for erasure in erasures if erasure.request.id not in blocked]
        if not ready:
            return Certified((), blocked)
        result = search(table, identifier, ready, engine)
        versions = kept_versions(table, identifier)
        issued = []
        for erasure in ready:
            problems = result.problems[erasure.request.id] + ([versions] if isinstance(versions, Problem) else [])
            if problems or isinstance(versions, Problem):
                blocked[erasure.request.id] = problems
                continue
            document = erasure.certificate
            if document is None:
                document = certificate(table, identifier, erasure, result, now_ms, versions)
                write_certificate(table, erasure.request.id, json.dumps(document, indent=1))
            issued.append(document)
        return Certified(tuple(issued), blocked)


def chosen(identifier: str, erasures: Sequence[Erasure], requests: Collection[str]) -> list[Erasure]:
    """Those of ``erasures`` that ``requests`` name, all if there are none; raises RefusedError for an unknown one."""
    known = {erasure.request.id for erasure in erasures}
    for request in requests:
        if request not in known:
            allowed = f"one of {', '.join(sorted(known))}" if known else "none, as nothing was requested"
            raise RefusedError(f"table {identifier} has no request {request}; allowed: {allowed}")
    return [erasure for erasure in erasures if not requests or erasure.request.id in requests]


def unserved(
    lake: Lake, table: Table, identifier: str, erasures: Collection[Erasure]
) -> Mapping[str, list[TopicPartition]]:
    """The topic partitions that lane `erase` has yet to serve, by request id."""
    topics = {erasure.request.topic for erasure in erasures}
    waiting: dict[str, list[TopicPartition]] = {}
    if not topics:
        return waiting
    cache = ManifestCache.of(lake)
    tombstones = removed_tombstones(table, identifier, cache)
    for owner, segments in read(table, identifier, cache=cache).by_partition.items():
        for erasure in erasures if owner.topic in topics else ():
            asked = requested_of([erasure], owner, segments, tombstones.get(owner, ()))
            if asked and asked.due_ms is not None:
                waiting.setdefault(erasure.request.id, []).append(owner)
    return waiting


def _void(erasure: Erasure) -> Problem | None:
    """Why no search can certify the request; None if one can."""
    if erasure.problem:
        return Problem("the request", "", erasure.problem, "a new request, and the expiry of what the former key names")
    if erasure.certificate and not is_intact(erasure.certificate):
        return Problem("the certificate", "", "it has been changed since it was issued", "a new request")
    return None


def _unserved(identifier: str, owner: TopicPartition) -> Problem:
    why = f"lane erase has not served topic partition {owner} yet"
    return Problem(
        "branch main", "", why, f"firn run {identifier} (firn erase {identifier} --status says what it waits for)"
    )


def older_snapshots(table: Table, erasure: Erasure) -> Problem | None:
    """The problem that snapshots from before the request have yet to expire; None if none is left.

    Tags and branches are not looked at, because only a search tells whether they hold a record.
    """
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    older = [
        snapshot.timestamp_ms
        for snapshot in table.metadata.snapshots
        if snapshot.snapshot_id not in heads and (snapshot.sequence_number or 0) <= erasure.request.sequence_number
    ]
    if not older:
        return None
    until = min(
        max(older) + max_snapshot_age(table.properties),
        erasure.request.history_expires_ms or erasure.request.deadline_ms,
    )
    why = f"they are from before the request; the last of them expires at {show_ms(until)}"
    return Problem(OLDER, "", why, "firn maintain at that time (with snapshots in firn.maintenance)")


def history_ends(lake: Lake, table: Table, identifier: str, now_ms: int) -> int:
    """The lowest sequence number of a snapshot that may stay on main and on Firn's branches; 0 if all may.

    Once the time of a request has come (``Request.history_expires_ms``) and lane `erase` has served it, no older
    snapshot stays.
    """
    due = [
        erasure
        for erasure in open_requests(table)
        if (expires_ms := erasure.request.history_expires_ms) is not None
        and now_ms >= expires_ms
        and not erasure.problem
    ]
    return number_of_main(table) if len(unserved(lake, table, identifier, due)) < len(due) else 0


def kept_versions(table: Table, identifier: str) -> str | Problem:
    """Why no older versions of deleted files are kept, in a certificate's words; a problem if some may be kept."""
    folders = {
        table.location(),
        *(table.properties[name] for name in (DATA_PATH, METADATA_PATH) if name in table.properties),
    }
    if all(PyArrowFileIO.parse_location(folder, table.io.properties)[0] == "file" for folder in folders):
        return _NO_VERSIONS
    if Policies.parse(identifier, table.properties).default.erase_object_versions == "none":
        return _DECLARED
    why = "it may keep older versions of files that are deleted (versioning, soft delete, object lock)"
    remedy = "firn.erase.object.versions = none, once the store keeps no older version of this table's files"
    return Problem("the object store", table.location(), why, remedy)


def certificates(lake: Lake, identifier: str, now_ms: int, *, issue: bool) -> list[Finding]:
    """One finding for each request of table ``identifier`` without a certificate; ``issue`` issues those that it can.

    The search waits until older snapshots have expired. Raises UnavailableError when catalog or store do not answer.
    """
    try:
        if not issue:
            waiting = (erasure.request.id for erasure in open_requests(lake.table(identifier)))
            return [_finding(request_id, "a maintenance run searches the table") for request_id in waiting]
        done = certify(lake, identifier, now_ms, LocalEngine(), quick=True)
    except RefusedError as error:
        return [Finding.of_error(Kind.CERTIFICATE, identifier, error)]
    return [
        *(_finding(str(one["request"]), f"issued: {export(lake, identifier, one)}") for one in done.issued),
        *(_finding(request_id, "; ".join(map(str, problems))) for request_id, problems in done.blocked.items()),
    ]


def _finding(request_id: str, reason: str) -> Finding:
    return Finding(Kind.CERTIFICATE, f"request {request_id}", goes=False, reason=reason, files=0)
