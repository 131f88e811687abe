"""Data-quality reports in Firn's home: a validation result, and the pages that were made of it.

Great Expectations keeps a result as ``results/<suite>/<run name>/<time>/<batch>.json`` and its page under the same
names; Firn's own page is named by the run.
"""

import re
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from pipeline.gc.finding import Finding, Kind
from pipeline.gc.limits import Limits
from pipeline.gc.waiting import Waiting
from pipeline.lake import Lake
from pipeline.lake.folders import Stored
from pipeline.overview.facts import Verdict
from pipeline.overview.results import StoredResult, files_below
from pipeline.stage.leftovers import SETTLED_MS

PARTS: Final = 4
"""Suite, run name, time and batch: the names of a result, and of its page."""
UNFINISHED: Final = re.compile(r"\.(.+)\.html\.[0-9a-f]{8}")
"""A page that is being written, or whose writer died."""


@dataclass(frozen=True)
class _Report:
    """The files of one run of a suite: results first, so that no page is ever missed by who finds a result."""

    name: str
    results: tuple[Stored, ...]
    pages: tuple[Stored, ...]

    @property
    def files(self) -> tuple[Stored, ...]:
        return self.results + self.pages

    def age_ms(self, now_ms: int) -> int:
        """Since it was validated; without a result since its newest page was made."""
        return min(file.age_ms(now_ms) for file in self.results or self.pages)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def verdict(self) -> Verdict | None:
        """What the result says; None when there is none, or it is torn."""
        for file in self.results:
            try:
                return StoredResult.model_validate_json(Path(file.path).read_bytes()).verdict()
            except (OSError, ValidationError):
                continue
        return None


def old_reports(lake: Lake, limits: Limits, now_ms: int, *, remove: bool) -> list[Finding]:
    """Reports on all tables beyond ``limits``; the newest of a table and lane stays, and what failed and still waits.

    The front page lists what is gone until it is built again.
    """
    reports = sorted(_reports(lake.reports_folder), key=lambda report: -report.age_ms(now_ms))
    beyond = _beyond(reports, limits, now_ms)
    verdicts = {report.name: report.verdict() for report in reports if report.name in beyond}
    kept = _kept(lake, reports, verdicts)
    found = []
    for report in reports:
        if report.name in beyond:
            goes = report.name not in kept
            reason = beyond[report.name] if goes else kept[report.name]
            found.append(Finding.of_files(Kind.REPORT, report.name, report.files, now_ms, goes=goes, reason=reason))
            if goes and remove:
                for file in report.files:
                    Path(file.path).unlink(missing_ok=True)
                    _prune(Path(file.path), report.name)
    return found


def _reports(folder: Path) -> list[_Report]:
    """All reports below ``folder``. Other files there, such as the front page, belong to none."""
    results: dict[str, list[Stored]] = defaultdict(list)
    pages: dict[str, list[Stored]] = defaultdict(list)
    for found, place, suffix in (
        (results, folder / "results", ".json"),
        (pages, folder / "data_docs" / "validations", ".html"),
    ):
        for path in files_below(place):
            if path.suffix == suffix and len(path.relative_to(place).parts) == PARTS:
                found[path.parts[-3]] += _there(path)
    for path in files_below(folder / "plans"):
        unfinished = UNFINISHED.fullmatch(path.name)
        if unfinished or path.suffix == ".html":
            pages[unfinished[1] if unfinished else path.stem] += _there(path)
    names = [name for name in results | pages if results[name] or pages[name]]
    return [_Report(name, tuple(results[name]), tuple(pages[name])) for name in names]


def _there(path: Path) -> list[Stored]:
    """The file at ``path``, unless another collector has just deleted it."""
    file = Stored.at(path)
    return [file] if file else []


def _beyond(reports: list[_Report], limits: Limits, now_ms: int) -> dict[str, str]:
    """Which of ``reports``, the oldest first, are beyond ``limits``, and why, by name."""
    found = {}
    total = sum(report.bytes for report in reports)
    for report in reports:
        age_ms = report.age_ms(now_ms)
        if not report.results and age_ms > SETTLED_MS:
            found[report.name] = "its validation result is gone"
        elif reason := limits.exceeded(age_ms, total):
            found[report.name] = reason
        else:
            continue
        total -= report.bytes
    return found


def _kept(lake: Lake, reports: list[_Report], verdicts: dict[str, Verdict | None]) -> dict[str, str]:
    """Why some of the reports with these ``verdicts`` stay nevertheless, by name."""
    kept = {}
    waiting = Waiting(lake)
    # Newest first, as far as there is a lane of which no newer report was seen.
    missing = {(one.table, one.lane) for one in verdicts.values() if one}
    for report in reversed(reports):
        if not missing:
            break
        verdict = verdicts[report.name] if report.name in verdicts else report.verdict()
        if verdict and (verdict.table, verdict.lane) in missing:
            missing.remove((verdict.table, verdict.lane))
            if report.name in verdicts:
                kept[report.name] = f"the newest of {verdict.table}, lane {verdict.lane}"
    for name, verdict in verdicts.items():
        if verdict and not verdict.passed and waiting.stage_of(verdict.table, verdict.plan):
            kept[name] = f"it failed, and {verdict.topic_partition} waits: firn retry {verdict.table}"
    return kept


def _prune(path: Path, name: str) -> None:
    """Take the folders of the report ``name`` above its file ``path`` away as far as they are empty."""
    if name in path.parts:
        for folder in path.parents[: path.parts[::-1].index(name)]:
            with suppress(OSError):
                folder.rmdir()
