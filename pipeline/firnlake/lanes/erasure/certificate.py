"""The certificate of an erasure: a JSON document that says what was erased, which files were searched, and when (C30).

Firn writes certificates next to the data-quality reports, as JSON and as a page that the front page lists.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from pyiceberg.table import Table

from firnlake.clock import show_ms
from firnlake.iceberg.catalog import Lake
from firnlake.lanes.erasure.requests import Certificate, Erasures, Request
from firnlake.lanes.erasure.search import SearchResult
from firnlake.table.topic_partition import TopicPartition
from firnlake_expectations.docs import build_pages
from firnlake_expectations.templates import CERTIFICATES, certificate_page, write_page

FORMAT: Final = "firn-certificate-v1"
SEAL: Final = "sha256"
"""Name of the field with the digest of the document. The digest is that of the canonical JSON without this field.

The digest reveals only accidental changes: it has no key, so whoever changes the document can also make a new digest.
"""
NOT_COVERED: Final = (
    "the Kafka topic itself, and other copies of the records outside the table: backups, exports, other tables",
    "values of other records that mention the key",
    "reports in Firn's home (FIRN_REPORTS_AGE_MS), if firn.report.samples shows keys",
    "logs of Airflow and Spark",
    "blocks that a deleted file has left on a disk",
)


def certificate(
    table: Table, identifier: str, erasures: Erasures, request: int, result: SearchResult, now_ms: int, versions: str
) -> Certificate:
    """The certificate of ``request``, whose search has this ``result``.

    ``versions`` says why no older versions of deleted files are kept. All times in the certificate are ISO 8601, UTC.
    """
    rows = erasures.rows_of(request)
    places: dict[TopicPartition, int] = {}
    for one in rows:
        places[one.topic_partition] = min(one.below, places.get(one.topic_partition, one.below))
    progress = filter(None, map(erasures.progress_of, places))
    destroyed = [one for one in erasures.destroyed if one.topic_partition in places and one.through >= request]
    deadline_ms = min(one.deadline_ms for one in rows)
    content = {
        "format": FORMAT,
        "firn": version("firnlake"),
        "table": identifier,
        "table_uuid": str(table.metadata.table_uuid),
        "request": request,
        "requested": show_ms(rows[0].requested_ms),
        "deadline": show_ms(deadline_ms),
        "issued": show_ms(now_ms),
        "in_time": now_ms <= deadline_ms,
        "digests": sorted({one.digest.hex() for one in rows}),
        "digest_method": "HMAC-SHA256 under the table's secret",
        "landed_again": sorted({one.digest.hex() for one in rows} & {digest.hex() for digest in result.newer}),
        "topic_partitions": [
            {"topic": place.topic, "partition": place.partition, "below_offset": below}
            for place, below in sorted(places.items())
        ],
        "by_key": _by_key(rows) if _differ(rows, places) else [],
        "commits": sorted({one.snapshot_id for one in progress} | {one.snapshot_id for one in destroyed}),
        "destroyed_files": [
            {"path": one.path, "bytes": one.bytes, "sha256": one.sha256, "records_erased": one.records}
            for one in destroyed
        ],
        "searched": {
            "snapshot": result.snapshot_id,
            "locations": list(result.roots),
            "files": result.files,
            "bytes": result.bytes,
            "listing_sha256": result.listing,
        },
        "object_versions": versions,
        "not_covered": list(NOT_COVERED),
    }
    return Certificate(request, now_ms, json.dumps({**content, SEAL: seal(content)}, indent=1))


def _differ(rows: Sequence[Request], places: Mapping[TopicPartition, int]) -> bool:
    """True when the rows of a request differ in their deadlines or, within a topic partition, in their offsets."""
    return any(one.below != places[one.topic_partition] or one.deadline_ms != rows[0].deadline_ms for one in rows)


def _by_key(rows: Sequence[Request]) -> list[dict[str, object]]:
    """The offset and deadline of each key and topic partition, in the form of the certificate's field ``by_key``.

    The other fields have only the lowest offset of a topic partition, and the earliest deadline.
    """
    ordered = sorted(rows, key=lambda one: (one.topic_partition, one.digest))
    return [
        {
            "digest": one.digest.hex(),
            "topic": one.topic,
            "partition": one.partition,
            "below_offset": one.below,
            "deadline": show_ms(one.deadline_ms),
        }
        for one in ordered
    ]


def content_of(issued: Certificate) -> Mapping[str, Any]:
    """The decoded document of ``issued``; raises ValueError when it is not JSON."""
    content: Mapping[str, Any] = json.loads(issued.document)
    return content


def is_intact(issued: Certificate) -> bool:
    """True when the document agrees with the digest that it contains, so that no accident has changed it (``SEAL``)."""
    try:
        content = dict(content_of(issued))
    except ValueError:
        return False
    return bool(content.pop(SEAL, None) == seal(content))


def seal(content: Mapping[str, Any]) -> str:
    """The SHA-256, in hexadecimal, of the canonical JSON of ``content``: sorted names, no spaces, UTF-8."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def export(lake: Lake, identifier: str, issued: Iterable[Certificate]) -> dict[int, Path]:
    """Write the certificates ``issued`` to the reports in Firn's home, and update the front page.

    Returns the path of each certificate's page by request id. The table keeps the documents as well.
    """
    pages = {one.request: _write(lake, identifier, one) for one in issued}
    if pages:
        build_pages(lake.reports_folder)
    return pages


def _write(lake: Lake, identifier: str, issued: Certificate) -> Path:
    folder = lake.reports_folder / CERTIFICATES / identifier
    name = f"request-{issued.request}.json"
    write_page(folder / name, issued.document)
    return write_page((folder / name).with_suffix(".html"), certificate_page(content_of(issued), name))
