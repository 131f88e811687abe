"""Firn's own pages for people: a front page, a page per table, and a page per verdict."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from firnlake_expectations.claim import Verdict
from firnlake_expectations.table_report import RUNS, Refusal, Seen, page_of, tables_of
from firnlake_expectations.templates import (
    CERTIFICATES,
    PLANS,
    REFUSALS,
    TABLES,
    VERDICTS,
    environment,
    read_document,
    write_page,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


T = TypeVar("T")

NAME = re.compile(r"\w[\w.-]{0,199}", re.ASCII)
"""Pattern of a verdict's name, which becomes the name of a page."""
NEWEST = 500
"""Maximum number of verdicts on a table's page; the pages of older ones stay."""
LISTED = 50
"""Maximum number of broken promises, and of topic partitions that were not judged, on a table's page."""
REFUSED = 10
"""Maximum number of refused plans under the row of a run."""
REASON = 1_000
"""Maximum number of characters of a refusal's reason."""
ON_FRONT = 5
"""Maximum number of a table's broken promises on the front page."""


@dataclass(frozen=True, slots=True)
class CertificatePage:
    """A certificate of erased keys; `page` is the path of its page under the reports folder."""

    table: str
    request: str
    page: str


def build_pages(reports: Path, now_ms: int | None = None) -> Path:
    """Build the pages for what is stored under `reports`, as of `now_ms` (epoch milliseconds; default: now).

    Returns the path of the front page, `index.html`, which also lists the certificates of erased keys. Verdicts never
    change, so their existing pages are kept. Each page is written atomically; when several processes build at once,
    the last front page wins.
    """
    now = int(datetime.now(UTC).timestamp() * 1000) if now_ms is None else now_ms
    stored = [one for one in _documents(reports / VERDICTS, Verdict) if NAME.fullmatch(one.run_name)]
    seen = {was.table: was for was in _documents(reports / TABLES, Seen)}
    certificates = list(_certificates(reports))
    tables = tables_of(stored, _documents(reports / REFUSALS, Refusal), seen, now)
    pages = environment()
    pages.globals.update(most_runs=RUNS, page_of=page_of, newest=NEWEST, most_refused=REFUSED, most_reason=REASON)
    for one in stored:
        target = reports / PLANS / f"{one.run_name}.html"
        if not target.exists():
            write_page(target, pages.get_template("plan.html.j2").render(verdict=one, claim=one.claim))
    for table in tables:
        page = pages.get_template("table.html.j2").render(
            report=table,
            certificates=[one for one in certificates if one.table == table.table],
            listed=LISTED,
        )
        write_page(reports / page_of(table.table), page)
    front = pages.get_template("index.html.j2").render(
        tables=tables, now_ms=now, listed=ON_FRONT, certificates=certificates
    )
    return write_page(reports / "index.html", front)


def _documents(folder: Path, kind: type[T]) -> list[T]:
    """The documents in the folder, the newest names first."""
    paths = sorted(folder.glob("[!.]*.json"), reverse=True)
    return [one for path in paths if (one := read_document(path, kind))]


def _certificates(reports: Path) -> Iterator[CertificatePage]:
    for page in sorted((reports / CERTIFICATES).glob("*/request-*.html")):
        yield CertificatePage(
            page.parent.name, page.stem.removeprefix("request-"), page.relative_to(reports).as_posix()
        )


_CERTIFICATE = re.compile(r"request-[0-9a-f]{32}\.(json|html)", re.ASCII)


def table_of(reports: Path, path: str) -> str | None:
    """The table that a page of a verdict or a table, or a page or document of a certificate, is about.

    `path` is relative to the folder `reports`; None for any other file.
    """
    parts = PurePosixPath(path).parts
    file = reports.joinpath(*parts)
    try:
        # Neither a part of the path nor a symbolic link may lead out of the folder.
        if not file.is_file() or not file.resolve().is_relative_to(reports.resolve()):
            return None
    except OSError:
        return None
    match parts, file.suffix:
        case [(folder, name), ".html"] if folder == TABLES:
            seen = read_document(file.with_suffix(".json"), Seen)
            return seen.table if seen else None
        case [(folder, name), ".html"] if folder == PLANS:
            stored = read_document((reports / VERDICTS / name).with_suffix(".json"), Verdict)
            return stored.claim.table if stored else None
        case [(folder, table, name), _] if folder == CERTIFICATES and _CERTIFICATE.fullmatch(name):
            return table
    return None
