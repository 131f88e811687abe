"""The certificate of an erasure: a JSON document that says what was read, and when (C30).

It lies in the warehouse, beside its request, and is never written again. Firn also writes it next to the data-quality
reports, as JSON and as a page that the front page lists. It never shows a key or the digest of one.
"""

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from pyiceberg.table import Table

from firnlake.clock import show_ms
from firnlake.iceberg.branches import number_of_main
from firnlake.iceberg.catalog import Lake
from firnlake.lanes.erasure.requests import Erasure
from firnlake.lanes.erasure.search import SearchResult
from firnlake.lanes.erasure.snapshot_files import locations_of
from firnlake_expectations.docs import build_pages
from firnlake_expectations.templates import CERTIFICATES, certificate_page, write_page

FORMAT: Final = "firn-certificate-v2"
SEAL: Final = "sha256"
"""Name of the field with the digest of the document. The digest is that of the canonical JSON without this field.

The digest reveals only accidental changes: it has no key, so whoever changes the document can also make a new digest.
"""
NOT_COVERED: Final = (
    "the Kafka topic itself, and other copies of the records outside the table: backups, exports, other tables",
    "what another catalog names outside the locations that were searched",
    "values of other records that mention the key",
    "reports in Firn's home (FIRN_REPORTS_AGE_MS), if firn.report.samples shows keys",
    "logs of Airflow, Spark and other engines",
    "temporary files on the machines that did the work, until their process has ended and another one has begun",
    "blocks that a deleted file has left on a disk",
)


def certificate(
    table: Table, identifier: str, erasure: Erasure, result: SearchResult, now_ms: int, versions: str
) -> dict[str, Any]:
    """The certificate of a request, whose search has this ``result``; all times in it are ISO 8601, UTC.

    ``versions`` says why no older versions of deleted files are kept.
    """
    request = erasure.request
    current = table.current_snapshot()
    everywhere = range(len(request.digests))
    content = {
        "format": FORMAT,
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
        "found_nowhere": sorted(set(everywhere) - result.found[request.id]),
        "newer": sorted(result.newer[request.id]),
        "snapshot": current.snapshot_id if current else None,
        "sequence_number": number_of_main(table),
        "locations": list(locations_of(table)),
        "files": result.files,
        "read": [{"named_by": where, "files": files, "bytes": size} for where, (files, size) in result.read.items()],
        "object_versions": versions,
        "not_covered": list(NOT_COVERED),
    }
    return {**content, SEAL: seal(content)}


def is_intact(document: Mapping[str, Any]) -> bool:
    """True when the document agrees with the digest that it contains, so that no accident has changed it (``SEAL``)."""
    content = dict(document)
    return bool(content.pop(SEAL, None) == seal(content))


def seal(content: Mapping[str, Any]) -> str:
    """The SHA-256, in hexadecimal, of the canonical JSON of ``content``: sorted names, no spaces, UTF-8."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def export(lake: Lake, identifier: str, document: Mapping[str, Any]) -> Path:
    """Write a certificate to the reports in Firn's home, and update the front page; returns the path of its page."""
    folder = lake.reports_folder / CERTIFICATES / identifier
    name = f"request-{document['request']}.json"
    write_page(folder / name, json.dumps(document, indent=1))
    page = write_page((folder / name).with_suffix(".html"), certificate_page(document, name))
    build_pages(lake.reports_folder)
    return page
