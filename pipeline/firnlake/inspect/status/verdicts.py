"""Verdicts and certificates with their pages, read from the documents in the folder of the reports.

A verdict is ``verdicts/<name>.json``, with a page of the same name. Its name begins with its time, which sorts as text.
A certificate is ``erasures/<table>/request-<id>.json``, with a page of the same name.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from firnlake.clock import to_ms
from firnlake.inspect.status.document import LaneVerdict
from firnlake_expectations.table_report import JudgedPlan, Seen
from firnlake_expectations.templates import CERTIFICATES, PLANS, TABLES, VERDICTS

LOOKED_AT = 2_000
"""Maximum number of verdicts that are read for all tables, newest first: old ones must not slow down a run."""
KEPT = 300

_NAME = re.compile(r"[\w%][\w.%-]{0,199}", re.ASCII)
"""Pattern of names under the reports folder: no such name can lead out of the folder or be too long."""


def of_lane(one: JudgedPlan) -> LaneVerdict:
    """The verdict without its samples, which only the verdict's own page shows."""
    claim, verdict = one.claim, one.verdict
    return LaneVerdict(
        table=claim.table,
        run_name=verdict.run_name,
        validation=verdict.validation,
        plan=claim.plan_id,
        topic_partition=f"{claim.topic}-{claim.partition}",
        lane=claim.lane,
        passed=verdict.passed,
        at_ms=one.validated_ms,
        as_of_ms=claim.now_ms,
        records_in=claim.records_in,
        records_out=claim.records_out,
        failures=tuple(finding.observed for finding in verdict.failures),
    )


def last_verdicts(reports: Path) -> Mapping[str, tuple[LaneVerdict, ...]]:
    """The newest verdicts by table, newest first; at most KEPT per table, where failed verdicts have precedence."""
    newest = sorted((reports / VERDICTS).glob("*.json"), reverse=True)
    by_table: dict[str, list[LaneVerdict]] = defaultdict(list)
    for stored in filter(None, map(JudgedPlan.read, islice(newest, LOOKED_AT))):
        with suppress(ValidationError):  # its types are not Firn's; the other verdicts are read
            by_table[stored.claim.table].append(of_lane(stored))
    return {table: _kept(verdicts) for table, verdicts in by_table.items()}


def _kept(verdicts: Iterable[LaneVerdict]) -> tuple[LaneVerdict, ...]:
    kept = sorted(verdicts, key=lambda verdict: (verdict.passed, -verdict.at_ms))[:KEPT]
    return tuple(sorted(kept, key=lambda verdict: -verdict.at_ms))


@dataclass(frozen=True)
class StoredReport:
    """A page of the reports. Users who may see ``table`` may open the page."""

    file: Path
    table: str


def report(reports: Path, path: str) -> StoredReport | None:
    """The page at ``path`` under the folder ``reports``; None unless it is the page of a stored verdict or a table."""
    parts = PurePosixPath(path).parts
    if not path.endswith(".html") or not all(_NAME.fullmatch(part) for part in parts):
        return None
    file = reports.joinpath(*parts)
    if len(parts) != len(("folder", "name")) or not _is_inside(reports, file):
        return None
    if parts[0] == TABLES:
        seen = Seen.read(file.with_suffix(".json"))
        return StoredReport(file, seen.table) if seen else None
    verdict = (reports / VERDICTS / parts[1]).with_suffix(".json")
    stored = JudgedPlan.read(verdict) if parts[0] == PLANS else None
    return StoredReport(file, stored.claim.table) if stored else None


_CERTIFICATE: Final = re.compile(r"request-[0-9a-f]{32}\.(json|html)", re.ASCII)
_REMEMBERED: Final = 1_000
"""Number of documents whose rows a process caches."""


@dataclass(frozen=True)
class CertificateRow:
    """One certificate in a list. Times are epoch milliseconds."""

    table: str
    request: str
    requested_ms: int
    deadline_ms: int
    issued_ms: int
    in_time: bool
    keys: int
    found_nowhere: int
    files: int


@dataclass(frozen=True)
class Certificates:
    """The newest certificates of a table, and the number of all its certificates."""

    rows: tuple[CertificateRow, ...] = ()
    total: int = 0


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True)

    table: str
    request: str
    requested: AwareDatetime
    deadline: AwareDatetime
    issued: AwareDatetime
    in_time: bool
    keys: int
    found_nowhere: tuple[int, ...]
    files: int


def certificates(reports: Path, table: str, most: int) -> Certificates:
    """At most ``most`` certificates of ``table`` under the folder ``reports``, those of the newest requests first."""
    # A certificate that is being written, or is not Firn's, does not keep the others from being shown.
    rows = [row for row in map(_row_of, _documents(reports, table)) if row and row.table == table]
    rows.sort(key=lambda row: (row.requested_ms, row.request), reverse=True)
    return Certificates(tuple(rows[:most]), len(rows))


def certificate_file(reports: Path, path: str) -> StoredReport | None:
    """The page or the document of a certificate at ``path`` under ``reports``; None for any other file."""
    parts = PurePosixPath(path).parts
    if len(parts) != len(("folder", "table", "name")) or parts[0] != CERTIFICATES:
        return None
    _, table, name = parts
    for document in _documents(reports, table):
        file = document.with_suffix(PurePosixPath(name).suffix)
        if file.name == name and _CERTIFICATE.fullmatch(name) and _is_inside(reports, file):
            row = _row_of(document)
            return StoredReport(file, table) if row and row.table == table else None
    return None


def _documents(reports: Path, table: str) -> Iterator[Path]:
    """Paths of the documents of ``table``. No path is built from a name in an HTTP request."""
    for folder in _listed(reports / CERTIFICATES):
        if folder.name == table:
            yield from (one for one in _listed(folder) if one.suffix == ".json" and _CERTIFICATE.fullmatch(one.name))


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _is_inside(reports: Path, file: Path) -> bool:
    """True for an existing file that is inside ``reports``, with symbolic links resolved."""
    return file.is_file() and file.resolve().is_relative_to(reports.resolve())


def _row_of(path: Path) -> CertificateRow | None:
    """The row of the document at ``path``; None if it can't be read or is not a certificate."""
    try:
        stat = path.stat()
        return _row(path, stat.st_mtime_ns, stat.st_size)
    except (OSError, ValidationError):
        return None


@lru_cache(_REMEMBERED)
def _row(path: Path, _changed_ns: int, _size: int) -> CertificateRow:
    document = _Document.model_validate_json(path.read_bytes())
    return CertificateRow(
        table=document.table,
        request=document.request,
        requested_ms=to_ms(document.requested),
        deadline_ms=to_ms(document.deadline),
        issued_ms=to_ms(document.issued),
        in_time=document.in_time,
        keys=document.keys,
        found_nowhere=len(document.found_nowhere),
        files=document.files,
    )
