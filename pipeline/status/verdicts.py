"""Verdicts and their pages, read from the validation results stored beside the reports.

Results are read as plain JSON, without Great Expectations. It stores a result as
``results/<suite>/<run name>/<time>/<batch>.json``, where the time sorts as text, and its page under the same names.
The run name names Firn's own page.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

from pydantic import AwareDatetime, BaseModel, ValidationError

from pipeline.clock import to_ms
from pipeline.status.document import LaneVerdict

LOOKED_AT = 2_000
"""Maximum number of results read, for all tables, newest first: old results must not make a run slower."""
KEPT = 300

_RESULTS = "results"
_NAME = re.compile(r"\w[\w.-]{0,199}", re.ASCII)
"""Pattern of names under the reports folder: none can lead out of it or be too long."""


class _Claim(BaseModel):
    table: str
    lane: str
    plan_id: str
    topic: str
    partition: int
    now_ms: int
    records_in: int
    records_out: int


class _Finding(BaseModel):
    passed: bool
    observed: str


class _Judged(BaseModel):
    run_name: str
    passed: bool
    expectations: tuple[_Finding, ...]


class _Firn(BaseModel):
    claim: _Claim
    verdict: _Judged


class _Meta(BaseModel):
    validation_time: AwareDatetime
    firn: _Firn


class StoredResult(BaseModel):
    """The parts of a stored validation result that identify its plan and outcome."""

    meta: _Meta

    @property
    def table(self) -> str:
        """The table that was judged."""
        return self.meta.firn.claim.table

    def verdict(self) -> LaneVerdict:
        """The verdict without its samples, which are shown only on its own page."""
        claim, judged = self.meta.firn.claim, self.meta.firn.verdict
        return LaneVerdict(
            table=claim.table,
            run_name=judged.run_name,
            plan=claim.plan_id,
            topic_partition=f"{claim.topic}-{claim.partition}",
            lane=claim.lane,
            passed=judged.passed,
            at_ms=to_ms(self.meta.validation_time),
            as_of_ms=claim.now_ms,
            records_in=claim.records_in,
            records_out=claim.records_out,
            failures=tuple(finding.observed for finding in judged.expectations if not finding.passed),
        )


def last_verdicts(reports: Path) -> Mapping[str, tuple[LaneVerdict, ...]]:
    """The newest verdicts by table, newest first; at most KEPT per table, with failed ones kept before passed ones."""
    paths = (path for path in files_below(reports / _RESULTS) if path.suffix == ".json")
    newest = sorted(paths, key=lambda path: path.parent.name, reverse=True)
    by_table: dict[str, list[LaneVerdict]] = defaultdict(list)
    for stored in _read(islice(newest, LOOKED_AT)):
        by_table[stored.table].append(stored.verdict())
    return {table: _kept(verdicts) for table, verdicts in by_table.items()}


def _kept(verdicts: Iterable[LaneVerdict]) -> tuple[LaneVerdict, ...]:
    kept = sorted(verdicts, key=lambda verdict: (verdict.passed, -verdict.at_ms))[:KEPT]
    return tuple(sorted(kept, key=lambda verdict: -verdict.at_ms))


def files_below(folder: Path) -> Iterator[Path]:
    """All files below ``folder``; unlike ``Path.rglob``, it tolerates that old reports are deleted meanwhile."""
    for parent, _, names in os.walk(folder):
        for name in names:
            yield Path(parent, name)


@dataclass(frozen=True)
class StoredReport:
    """A page of the reports, open to users who may see ``table``."""

    file: Path
    table: str


def report(reports: Path, path: str) -> StoredReport | None:
    """The page at ``path`` under the folder ``reports``; None unless it is the page of a stored result."""
    parts = PurePosixPath(path).parts
    if not path.endswith(".html") or not all(_NAME.fullmatch(part) for part in parts):
        return None
    match parts:
        case ("plans", page):
            results = sorted((reports / _RESULTS).glob(f"*/{page.removesuffix('.html')}/*/*.json"))
        case ("data_docs", "validations", *names):
            results = [(reports / _RESULTS).joinpath(*names).with_suffix(".json")]
        case _:
            return None
    file = reports.joinpath(*parts)
    # Resolved, because a symbolic link must not lead out either.
    if not file.is_file() or not file.resolve().is_relative_to(reports.resolve()):
        return None
    return next((StoredReport(file, stored.table) for stored in _read(results)), None)


def _read(paths: Iterable[Path]) -> Iterator[StoredResult]:
    for path in paths:
        try:
            yield StoredResult.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            continue  # being written, or not Firn's: the pages of the others don't wait for it
