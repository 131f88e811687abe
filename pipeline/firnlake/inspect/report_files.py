"""Verdicts, certificates and their pages in the folder of the reports.

A verdict is ``verdicts/<name>.json``, with a page ``plans/<name>.html``. Its name begins with its time, which sorts as
text. A certificate is ``erasures/<table>/request-<id>.json``, with a page of the same name.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from firnlake.inspect.status import LaneVerdict
from firnlake_expectations.table_report import JudgedPlan, Seen
from firnlake_expectations.templates import CERTIFICATES, PLANS, TABLES, VERDICTS

LOOKED_AT = 2_000
"""Maximum number of verdicts that are read for all tables, newest first: old ones must not slow down a run."""
KEPT = 300

_CERTIFICATE: Final = re.compile(r"request-[0-9a-f]{32}\.(json|html)", re.ASCII)


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


class Certificate(BaseModel):
    """What a list tells of a certificate of erasure."""

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

    @classmethod
    def read(cls, path: Path) -> "Certificate | None":
        """The certificate at ``path``; None for a document that is being written, or is not a certificate of Firn for
        the table that its folder names."""
        try:
            found = cls.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            return None
        return found if found.table == path.parent.name and _CERTIFICATE.fullmatch(path.name) else None


def certificates(reports: Path, table: str) -> list[Certificate]:
    """The certificates of ``table`` under the folder ``reports``, those of the newest requests first."""
    # No path is built from a name in an HTTP request.
    folders = [folder for folder in (reports / CERTIFICATES).glob("*") if folder.name == table]
    found = filter(None, (Certificate.read(path) for folder in folders for path in folder.glob("*.json")))
    return sorted(found, key=lambda one: (one.requested, one.request), reverse=True)


@dataclass(frozen=True)
class StoredReport:
    """A page or document of the reports. Users who may see ``table`` may open it."""

    file: Path
    table: str


def report(reports: Path, path: str) -> StoredReport | None:
    """The page of a verdict or a table, or the page or document of a certificate, at ``path`` under the folder
    ``reports``; None for any other file."""
    parts = PurePosixPath(path).parts
    file = reports.joinpath(*parts)
    try:
        # Neither a part of the path nor a symbolic link may lead out of the folder.
        if not file.is_file() or not file.resolve().is_relative_to(reports.resolve()):
            return None
    except OSError:
        return None
    told: Seen | Certificate | None = None
    match parts, file.suffix:
        case [(folder, name), ".html"] if folder == TABLES:
            told = Seen.read(file.with_suffix(".json"))
        case [(folder, name), ".html"] if folder == PLANS:
            stored = JudgedPlan.read((reports / VERDICTS / name).with_suffix(".json"))
            return StoredReport(file, stored.claim.table) if stored else None
        case [(folder, _, name), _] if folder == CERTIFICATES and _CERTIFICATE.fullmatch(name):
            told = Certificate.read(file.with_suffix(".json"))
    return StoredReport(file, told.table) if told else None
