"""Certificates of erasures, read from the documents beside the reports (`pipeline.prove.export` writes them).

A document is ``erasures/<table>/request-<id>.json``; its page has the same name.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from expectations.certificate import CERTIFICATES
from pipeline.clock import to_ms
from pipeline.status.verdicts import StoredReport

_NAME: Final = re.compile(r"request-([0-9]{1,18})\.(json|html)", re.ASCII)
_REMEMBERED: Final = 1_000
"""Number of documents that a process keeps the row of: one of 100,000 keys has 7 MB."""


@dataclass(frozen=True)
class CertificateRow:
    """One certificate in a list. Times are epoch milliseconds."""

    table: str
    request: int
    requested_ms: int
    deadline_ms: int
    issued_ms: int
    in_time: bool
    keys: int
    files_destroyed: int
    records_erased: int


@dataclass(frozen=True)
class Certificates:
    """The newest certificates of a table, and how many there are."""

    rows: tuple[CertificateRow, ...] = ()
    total: int = 0


class _Destroyed(BaseModel):
    records_erased: int


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True)

    table: str
    request: int
    requested: AwareDatetime
    deadline: AwareDatetime
    issued: AwareDatetime
    in_time: bool
    digests: tuple[str, ...]
    destroyed_files: tuple[_Destroyed, ...]


def certificates(reports: Path, table: str, most: int) -> Certificates:
    """The certificates of ``table`` under the folder ``reports``, those of the newest requests first; ``most`` bounds
    how many are read."""
    numbered = {int(match[1]): path for path in _documents(reports, table) if (match := _NAME.fullmatch(path.name))}
    newest = [numbered[number] for number in sorted(numbered, reverse=True)[:most]]
    # One that is being written, or not Firn's, does not keep the others from being shown.
    rows = tuple(row for row in map(_row_of, newest) if row and row.table == table)
    return Certificates(rows, len(numbered))


def certificate_file(reports: Path, path: str) -> StoredReport | None:
    """The page or the document of a certificate at ``path`` under ``reports``; None when it is neither."""
    parts = PurePosixPath(path).parts
    if len(parts) != len(("folder", "table", "name")) or parts[0] != CERTIFICATES:
        return None
    _, table, name = parts
    for document in _documents(reports, table):
        file = document.with_suffix(PurePosixPath(name).suffix)
        if file.name == name and _NAME.fullmatch(name) and _is_inside(reports, file):
            row = _row_of(document)
            return StoredReport(file, table) if row and row.table == table else None
    return None


def _documents(reports: Path, table: str) -> Iterator[Path]:
    """Paths of the documents of ``table``. No path is made of a name that somebody asks for."""
    for folder in _listed(reports / CERTIFICATES):
        if folder.name == table:
            yield from (one for one in _listed(folder) if one.suffix == ".json" and _NAME.fullmatch(one.name))


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _is_inside(reports: Path, file: Path) -> bool:
    """True for a file that is there, and that no symbolic link leads out to."""
    return file.is_file() and file.resolve().is_relative_to(reports.resolve())


def _row_of(path: Path) -> CertificateRow | None:
    """The row of the document at ``path``; None when it can't be read, or is none."""
    try:
        stat = path.stat()
        return _read(path, stat.st_mtime_ns, stat.st_size)
    except (OSError, ValidationError):
        return None


@lru_cache(_REMEMBERED)
def _read(path: Path, _changed_ns: int, _size: int) -> CertificateRow:
    document = _Document.model_validate_json(path.read_bytes())
    return CertificateRow(
        table=document.table,
        request=document.request,
        requested_ms=to_ms(document.requested),
        deadline_ms=to_ms(document.deadline),
        issued_ms=to_ms(document.issued),
        in_time=document.in_time,
        keys=len(document.digests),
        files_destroyed=len(document.destroyed_files),
        records_erased=sum(one.records_erased for one in document.destroyed_files),
    )
