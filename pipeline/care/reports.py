"""Data-quality reports in Firn's home: validation results and the pages made from them.

Great Expectations keeps a result as ``results/<suite>/<run name>/<time>/<batch>.json`` and its page under the same
names; Firn's own page is named after the run.
"""

import re
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from pipeline.care.garbage import Garbage, Kind
from pipeline.care.in_use import Waiting
from pipeline.care.limits import SETTLED_MS, KeepLimits
from pipeline.lake import Lake
from pipeline.lake.folders import Stored
from pipeline.status import LaneVerdict
from pipeline.status.verdicts import StoredResult, files_below

PARTS: Final = 4
"""Number of path parts that name a result and its page: suite, run name, time and batch."""
UNFINISHED: Final = re.compile(r"\.(.+)\.html\.[0-9a-f]{8}")
"""Name of a page that is being written, or whose writer died."""


@dataclass(frozen=True)
class _Report:
    """The files of one run of a suite, results first: a reader that finds a result also finds its page."""

    name: str
    results: tuple[Stored, ...]
    pages: tuple[Stored, ...]

    @property
    def files(self) -> tuple[Stored, ...]:
        return self.results + self.pages

    def age_ms(self, now_ms: int) -> int:
        """Age since validation, in milliseconds; without a result, since the newest page was made."""
        return min(file.age_ms(now_ms) for file in self.results or self.pages)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def verdict(self) -> LaneVerdict | None:
        """The verdict in the result; None when there is no result, or it is torn."""
        for file in self.results:
            try:
                return StoredResult.model_validate_json(Path(file.path).read_bytes()).verdict()
            except (OSError, ValidationError):
                continue
        return None


def old_reports(lake: Lake, limits: KeepLimits, now_ms: int, *, remove: bool) -> list[Garbage]:
    """Reports on all tables beyond ``limits``, except the newest per table and lane, and failures that still wait.

    The front page lists removed reports until it is rebuilt.
    """
    reports = sorted(_reports(lake.reports_folder), key=lambda report: -report.age_ms(now_ms))
    beyond = _beyond(reports, limits, now_ms)
    verdicts = {report.name: report.verdict() for report in reports if report.name in beyond}
    kept = _kept(lake, reports, verdicts)
    garbage = []
    for report in reports:
        if report.name in beyond:
            goes = report.name not in kept
            reason = beyond[report.name] if goes else kept[report.name]
            garbage.append(Garbage.of_files(Kind.REPORT, report.name, report.files, now_ms, goes=goes, reason=reason))
            if goes and remove:
                for file in report.files:
                    Path(file.path).unlink(missing_ok=True)
                    _prune(Path(file.path), report.name)
    return garbage


def _reports(folder: Path) -> list[_Report]:
    """All reports below ``folder``. Other files there, such as the front page, belong to none."""
    results: dict[str, list[Stored]] = defaultdict(list)
    pages: dict[str, list[Stored]] = defaultdict(list)
    for files, place, suffix in (
        (results, folder / "results", ".json"),
        (pages, folder / "data_docs" / "validations", ".html"),
    ):
        for path in files_below(place):
            if path.suffix == suffix and len(path.relative_to(place).parts) == PARTS:
                files[path.parts[-3]] += _there(path)
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


def _beyond(reports: list[_Report], limits: KeepLimits, now_ms: int) -> dict[str, str]:
    """Names of ``reports`` (oldest first) beyond ``limits``, with the reasons."""
    reasons = {}
    total = sum(report.bytes for report in reports)
    for report in reports:
        age_ms = report.age_ms(now_ms)
        if not report.results and age_ms > SETTLED_MS:
            reasons[report.name] = "its validation result is gone"
        elif reason := limits.exceeded(age_ms, total):
            reasons[report.name] = reason
        else:
            continue
        total -= report.bytes
    return reasons


def _kept(lake: Lake, reports: list[_Report], verdicts: dict[str, LaneVerdict | None]) -> dict[str, str]:
    """Reasons why reports with these ``verdicts`` stay nevertheless, by name."""
    kept = {}
    waiting = Waiting(lake)
    # Newest first, until every lane has its newest report.
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
            kept[name] = f"it failed, and {verdict.topic_partition} waits (firn retry {verdict.table})"
    return kept


def _prune(path: Path, name: str) -> None:
    """Remove the empty folders of the report ``name`` above its file ``path``."""
    if name in path.parts:
        for folder in path.parents[: path.parts[::-1].index(name)]:
            with suppress(OSError):
                folder.rmdir()
