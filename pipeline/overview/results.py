"""Verdicts and their pages, by the validation results that are stored beside the reports.

Results are read as the JSON that they are, without Great Expectations. It keeps a result as
``results/<suite>/<run name>/<time>/<batch>.json``, where the time sorts as text, and its page under the same names.
The run name names Firn's own page.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

from pydantic import AwareDatetime, BaseModel, ValidationError

from pipeline.clock import to_ms
from pipeline.overview.facts import Verdict

LOOKED_AT = 2_000
"""So many results of all tables are read, the newest ones: a run must not take longer because there were many."""
KEPT = 300

_RESULTS = "results"
_NAME = re.compile(r"\w[\w.-]{0,199}", re.ASCII)
"""What names under the reports folder look like: none is a way out of it, or too long for one."""


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
    """A stored validation result, as far as it says who judged what."""

    meta: _Meta

    @property
    def table(self) -> str:
        return self.meta.firn.claim.table

    def verdict(self) -> Verdict:
        """The verdict without its samples, which belong on its own page."""
        claim, judged = self.meta.firn.claim, self.meta.firn.verdict
        return Verdict(
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


def last_verdicts(reports: Path, table: str) -> tuple[Verdict, ...]:
    """The newest verdicts on ``table``, newest first: at most KEPT, those that failed before those that passed."""
    stored = (path for path in files_below(reports / _RESULTS) if path.suffix == ".json")
    results = sorted(stored, key=lambda path: path.parent.name, reverse=True)
    found = [stored.verdict() for stored in _read(islice(results, LOOKED_AT)) if stored.table == table]
    kept = sorted(found, key=lambda verdict: (verdict.passed, -verdict.at_ms))[:KEPT]
    return tuple(sorted(kept, key=lambda verdict: -verdict.at_ms))


def files_below(folder: Path) -> Iterator[Path]:
    """All files below ``folder``; unlike ``Path.rglob`` it bears that old reports are deleted meanwhile."""
    for parent, _, names in os.walk(folder):
        for name in names:
            yield Path(parent, name)


@dataclass(frozen=True)
class Report:
    """A page of the reports that may be shown to those who may see ``table``."""

    file: Path
    table: str


def report(reports: Path, path: str) -> Report | None:
    """The page at ``path`` below the folder ``reports``; None unless it is the page of a stored result."""
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
    # Resolved: a link must not lead out either.
    if not file.is_file() or not file.resolve().is_relative_to(reports.resolve()):
        return None
    return next((Report(file, stored.table) for stored in _read(results)), None)


def _read(paths: Iterable[Path]) -> Iterator[StoredResult]:
    for path in paths:
        try:
            yield StoredResult.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            continue  # being written, or not Firn's: the pages of the others don't wait for it
