"""Certificates of erasures (C30): a request gets one once a search of every file finds nothing that it covers.

Certificates are the last step of maintenance, because they wait for snapshots to expire and for orphans to be deleted.
A certificate is a JSON document that says what was read, and when. It lies in the warehouse, next to its request, and
is never written again. Firn also writes it to its reports, as JSON and as a page that the front page lists. It never
shows a key or the digest of one.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.clock import show_ms
from firnlake.engine.engine import Engine, LocalEngine
from firnlake.errors import RefusedError
from firnlake.iceberg.branches import number_of_main
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import Finding, Kind
from firnlake.lanes.erase import requested_in
from firnlake.lanes.erasure.requests import Erasure, erasures_of, history_ms, locations_of, open_requests, write
from firnlake.lanes.erasure.search import OLDER, Problem, Search
from firnlake.table.manifest_reader import ManifestCache, read
from firnlake.table.policy import LONG_MAX, Policies
from firnlake.table.removed_tombstones import removed_tombstones
from firnlake_expectations.data_quality import CERTIFICATES, build_pages, certificate_page, write_page

_FORMAT: Final = "firn-certificate-v2"
_SEAL: Final = "sha256"
"""Name of the field with the digest of the document. The digest is that of the canonical JSON without this field.

The digest reveals only accidental changes: it has no key, so whoever changes the document can also make a new digest.
"""
_NOT_COVERED: Final = (
    "the Kafka topic itself, and other copies of the records outside the table: backups, exports, other tables",
    "what another catalog names outside the locations that were searched",
    "values of other records that mention the key",
    "copies of reports in Firn's home, if firn.report.samples shows keys",
    "logs of Airflow, Spark and other engines",
    "temporary files on the machines that did the work, until their process has ended and another one has begun",
    "blocks that a deleted file has left on a disk",
)


@dataclass(frozen=True)
class Certified:
    """The certificates that were ``issued``, now or before, the pages of these, and the problems of the other requests,
    both by request id."""

    issued: tuple[Mapping[str, Any], ...] = ()
    pages: Mapping[str, Path] = field(default_factory=dict)
    blocked: Mapping[str, Sequence[Problem]] = field(default_factory=dict)


def certify(lake: Lake, identifier: str, now_ms: int, engine: Engine, requests: Collection[str] = ()) -> Certified:
    """Issue the missing certificates of those ``requests`` of table ``identifier``; of all requests if none is named.

    A named request that has a certificate already is searched for again, and the certificate stays as it is.
    Raises RefusedError for an unknown request, UnavailableError when catalog or store do not answer.
    """
    with lake.answering():
        table = lake.table(identifier)
        erasures = choose(identifier, erasures_of(table), requests)
        erasures = [erasure for erasure in erasures if requests or erasure.certificate is None]
        blocked = {one.request.id: problems for one in erasures if (problems := list(_void(one)))}
        ready = [erasure for erasure in erasures if erasure.request.id not in blocked]
        if not ready:
            return Certified(blocked=blocked)
        result = Search(table, identifier, ready)
        result.run(engine)
        versions, kept = _kept_versions(table, identifier)
        issued = []
        for one in ready:
            request_id, document = one.request.id, one.certificate
            if found := [*result.problems[request_id], *kept]:
                blocked[request_id] = found
                continue
            if document is None:
                document = _certificate(table, identifier, one, result, now_ms, versions)
                write(table, request_id, "certificate.json", json.dumps(document, indent=1))
            issued.append(document)
        pages = {document["request"]: _export(lake, identifier, document) for document in issued}
        if pages:
            build_pages(lake.reports_folder)
        return Certified(tuple(issued), pages, blocked)


def choose(identifier: str, erasures: Sequence[Erasure], requests: Collection[str]) -> list[Erasure]:
    """Those of ``erasures`` that ``requests`` name, all if there are none; raises RefusedError for an unknown one."""
    ids = {erasure.request.id for erasure in erasures}
    for request in requests:
        if request not in ids:
            allowed = f"one of {', '.join(sorted(ids))}" if ids else "none, as nothing was requested"
            raise RefusedError(f"table {identifier} has no request {request}; allowed: {allowed}")
    return [erasure for erasure in erasures if not requests or erasure.request.id in requests]


def obstacles(
    lake: Lake, table: Table, identifier: str, erasures: Sequence[Erasure]
) -> list[tuple[Erasure, list[Problem]]]:
    """Each of ``erasures`` with what prevents its certificate, as far as metadata tell it.

    Only a search finds what tags, branches and files beside main hold.
    """
    found = [(erasure, list(_void(erasure))) for erasure in erasures]
    waiting = [(erasure, problems) for erasure, problems in found if erasure.certificate is None and not problems]
    if waiting:
        cache = ManifestCache.of(lake)
        segments, tombstones = read(table, identifier, cache=cache), removed_tombstones(table, identifier, cache)
    for erasure, problems in waiting:
        for owner, asked in requested_in([erasure], segments, tombstones).items():
            if asked.due_ms is not None:
                why = f"lane erase has not served topic partition {owner} yet"
                remedy = f"firn run {identifier} (firn explain {identifier} {owner} says what it waits for)"
                problems.append(Problem(f"branch {MAIN_BRANCH}", "", why, remedy))
        problems += _older(table, erasure)
    return found


def _void(erasure: Erasure) -> Iterator[Problem]:
    """Why no search can certify the request."""
    if erasure.problem:
        remedy = "a new request, and the expiry of what the former key names"
        yield Problem("the request", "", erasure.problem, remedy)
    content = dict(erasure.certificate or {})
    if content and content.pop(_SEAL, None) != _seal(content):
        yield Problem("the certificate", "", "it has been changed since it was issued", "a new request")


def _older(table: Table, erasure: Erasure) -> Iterator[Problem]:
    """The problem that snapshots from before the request have yet to expire; tags and branches stay."""
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    older = [
        snapshot.timestamp_ms
        for snapshot in table.metadata.snapshots
        if snapshot.snapshot_id not in heads and (snapshot.sequence_number or 0) <= erasure.request.sequence_number
    ]
    if older:
        latest = erasure.request.history_expires_ms or erasure.request.deadline_ms
        until = min(max(older) + history_ms(table), latest)
        why = f"they are from before the request; the last of them expires at {show_ms(until)}"
        yield Problem(OLDER, "", why, "firn maintain at that time (with snapshots in firn.maintenance)")


def history_ends(lake: Lake, table: Table, identifier: str, now_ms: int) -> int:
    """The lowest sequence number of a snapshot that may stay on main and on Firn's branches; 0 if all may.

    Once the time of a request has come (``Request.history_expires_ms``) and lane `erase` has served it, no older
    snapshot stays.
    """
    due = [one for one in open_requests(table) if now_ms >= (one.request.history_expires_ms or LONG_MAX)]
    waiting = obstacles(lake, table, identifier, due)
    served = any(all(one.where == OLDER for one in problems) for _, problems in waiting)
    return number_of_main(table) if served else 0


def _kept_versions(table: Table, identifier: str) -> tuple[str, Sequence[Problem]]:
    """Why no older versions of deleted files are kept, in a certificate's words; or the problem that some may be."""
    folders = locations_of(table)
    if all(PyArrowFileIO.parse_location(folder, table.io.properties)[0] == "file" for folder in folders):
        return "none: a file system keeps no older versions of deleted files", ()
    if Policies.parse(identifier, table.properties).default.erase_object_versions == "none":
        return "none, as the operator declares (firn.erase.object.versions = none)", ()
    why = "it may keep older versions of files that are deleted (versioning, soft delete, object lock)"
    remedy = "firn.erase.object.versions = none, once the store keeps no older version of this table's files"
    return "", [Problem("the object store", table.location(), why, remedy)]


def _certificate(
    table: Table, identifier: str, one: Erasure, result: Search, now_ms: int, versions: str
) -> dict[str, Any]:
    """The certificate of ``one`` request, whose search has this ``result``; all times in it are ISO 8601, UTC.

    ``versions`` says why no older versions of deleted files are kept.
    """
    request = one.request
    found = {position for read in one.reads.values() for position in read.found | read.newer}
    newer = {position for path, read in one.reads.items() if path in result.sizes for position in read.newer}
    content = {
        "format": _FORMAT,
        "firn": version("firnlake"),
        "table": identifier,
        "table_uuid": request.table_uuid,
        "request": request.id,
        "requested": show_ms(request.requested_ms),
        "deadline": show_ms(request.deadline_ms),
        "issued": show_ms(now_ms),
        "in_time": now_ms <= request.deadline_ms,
        "topic": request.topic,
        "log_ends": {str(partition): end for partition, end in sorted(request.log_ends.items())},
        "requested_at_sequence_number": request.sequence_number,
        "keys": len(request.digests),
        "found_nowhere": sorted(set(range(len(request.digests))) - found),
        "newer": sorted(newer),
        "snapshot": table.metadata.current_snapshot_id,
        "sequence_number": number_of_main(table),
        "locations": list(locations_of(table)),
        "files": len(result.sizes),
        "read": [
            {"named_by": where, "files": len(sizes), "bytes": sum(sizes)} for where, sizes in result.by_name().items()
        ],
        "object_versions": versions,
        "not_covered": list(_NOT_COVERED),
    }
    return {**content, _SEAL: _seal(content)}


def _seal(content: Mapping[str, Any]) -> str:
    """The SHA-256, in hexadecimal, of the canonical JSON of ``content``: sorted names, no spaces, UTF-8."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _export(lake: Lake, identifier: str, document: Mapping[str, Any]) -> Path:
    """Write a certificate to the reports in Firn's home; returns the path of its page."""
    path = lake.reports_folder / CERTIFICATES / identifier / f"request-{document['request']}.json"
    write_page(path, json.dumps(document, indent=1))
    return write_page(path.with_suffix(".html"), certificate_page(document, path.name))


def certificates(lake: Lake, identifier: str, now_ms: int, *, issue: bool) -> list[Finding]:
    """One finding for each request of table ``identifier`` without a certificate; ``issue`` issues those that it can.

    The search waits until older snapshots have expired. Raises UnavailableError when catalog or store do not answer.
    """
    try:
        table = lake.table(identifier)
        waiting = {one.request.id: why for one, why in obstacles(lake, table, identifier, open_requests(table))}
        ready = [request_id for request_id, problems in waiting.items() if not problems]
        certified = certify(lake, identifier, now_ms, LocalEngine(), ready) if issue and ready else Certified()
    except RefusedError as error:
        return [Finding.of_error(Kind.CERTIFICATE, identifier, error)]
    reasons = {one: "; ".join(map(str, problems)) for one, problems in {**waiting, **certified.blocked}.items()}
    reasons |= {request_id: f"issued: {page}" for request_id, page in certified.pages.items()}
    searched = "a maintenance run searches the table"
    return [
        Finding(Kind.CERTIFICATE, f"request {request_id}", goes=False, reason=reason or searched, files=0)
        for request_id, reason in reasons.items()
    ]
