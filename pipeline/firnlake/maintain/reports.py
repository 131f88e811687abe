"""Plan files and data-quality reports in Firn's home: files in use stay; limits of age and size apply to the others.

A verdict and its page have the same name. Great Expectations keeps the result of a job as
``results/<suite>/<run name>/<time>/<batch>.json``; it is a report of its own here. The limits for Firn's home are
settings of the machine, because the home serves many tables; the limits for files at a table's location are properties
of the table.
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.deleter import Finding, Kind
from firnlake.iceberg.files import Stored
from firnlake.job import lease
from firnlake.job.failures import failed_plans
from firnlake.job.plan import Plan
from firnlake.job.stage import Stage, stages_of
from firnlake.job.stale import SETTLED_MS
from firnlake.table.policy import DAY_MS, GIB, UNLIMITED
from firnlake_expectations.table_report import JudgedPlan
from firnlake_expectations.templates import PLANS, REFUSALS, RESULTS, VERDICTS


@dataclass(frozen=True)
class KeepLimits:
    """Limits of age and size: a file older than ``age_ms`` milliseconds is deleted, and the oldest files are deleted
    as long as all files together have more than ``bytes``."""

    age_setting: str
    """Name of the setting or property for ``age_ms``."""
    age_ms: int
    bytes_setting: str
    """Name of the setting or property for ``bytes``."""
    bytes: int

    def __str__(self) -> str:
        return f"{self.age_setting} = {self.age_ms}, {self.bytes_setting} = {self.bytes}"

    @classmethod
    def of_plans(cls) -> "KeepLimits":
        """Limits for plan files."""
        return cls._of("FIRN_PLANS", DAY_MS, GIB)

    @classmethod
    def of_reports(cls) -> "KeepLimits":
        """Limits for data-quality reports."""
        return cls._of("FIRN_REPORTS", 90 * DAY_MS, 10 * GIB)

    @classmethod
    def _of(cls, setting: str, age_ms: int, size: int) -> "KeepLimits":
        age_setting, bytes_setting = f"{setting}_AGE_MS", f"{setting}_BYTES"
        return cls(age_setting, _setting(age_setting, age_ms), bytes_setting, _setting(bytes_setting, size))

    def exceeded(self, age_ms: int, total: int) -> str | None:
        """Why the oldest item, of age ``age_ms``, is deleted if all items have ``total`` bytes; None if it stays.

        The size limit does not apply to items that were written recently.
        """
        if self.age_ms != UNLIMITED and age_ms > self.age_ms:
            return f"older than {self.age_setting} = {self.age_ms}"
        if self.bytes != UNLIMITED and total > self.bytes and age_ms > SETTLED_MS:
            return f"the oldest, beyond {self.bytes_setting} = {self.bytes}"
        return None


def _setting(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    if text == str(UNLIMITED) or (text.isascii() and text.isdigit()):
        return int(text)
    raise RefusedError(f"{name} is {text!r}; allowed: a whole number, 0 or more, or {UNLIMITED} for no limit")


Works = Callable[[str, str], bool]
"""A function of a table and the id of the run that holds the table's lease; returns True while the run is active."""


class Waiting:
    """Finds the stage or run that needs a plan; reads a table's stages at the first question about the table."""

    def __init__(self, lake: Lake, works: Works | None = None) -> None:
        self._lake = lake
        self._works = works
        self._staged = cache(self._read)
        self.failed = cache(self._failed)

    def stage_of(self, table: str, plan_id: str) -> Stage | None:
        """The stage of table ``table`` that contains the plan; None if there is none."""
        return self._staged(table).get(plan_id)

    def run_of(self, table: str, written_ms: int) -> str | None:
        """The id of the active run that may have planned for ``table`` at this time (epoch milliseconds), if any."""
        held = lease.holder(self._lake.runs_folder, table)
        if held is None or written_ms < held.since_ms:
            return None
        return held.run_id if self._works is None or self._works(table, held.run_id) else None

    def _failed(self, table: str) -> frozenset[str]:
        """Ids of the failed plans of table ``table`` (C20)."""
        try:
            return frozenset(one.plan.id for one in failed_plans(self._lake, table)) if "." in table else frozenset()
        except RefusedError:
            return frozenset()

    def _read(self, table: str) -> Mapping[str, Stage]:
        by_id: dict[str, Stage] = {}
        for name in stages_of(self._lake, table) if "." in table else ():
            try:
                stage = Stage.load(self._lake, name)
            except RefusedError:
                continue  # the stage was deleted meanwhile, or is unreadable
            by_id |= dict.fromkeys((plan.id for plan in stage.plans), stage)
        return by_id


PLAN_FILE: Final = re.compile(r"[0-9a-f]{16}\.json")


def old_plans(
    lake: Lake, limits: KeepLimits, now_ms: int, *, remove: bool, works: Works | None = None
) -> list[Finding]:
    """Findings about plan files beyond ``limits``, whatever their table; files that a stage or active run needs stay.

    With ``remove``, the other plan files beyond ``limits`` are deleted.
    """
    files = sorted(_files(lake.plans_folder), key=lambda file: -file.age_ms(now_ms))
    waiting = Waiting(lake, works)
    total = sum(file.bytes for file in files)
    garbage = []
    for file in files:
        reason = limits.exceeded(file.age_ms(now_ms), total)
        if reason is None:
            continue
        waits = _waits(waiting, file, now_ms)
        if waits is None:
            total -= file.bytes
            if remove:
                Path(file.path).unlink(missing_ok=True)
        reason = waits or reason
        garbage.append(Finding.of_files(Kind.PLAN, file.path, [file], now_ms, goes=waits is None, reason=reason))
    return garbage


def _files(folder: Path) -> list[Stored]:
    """The plan files in ``folder``; other files are ignored."""
    paths = (path for path in folder.glob("*.json") if PLAN_FILE.fullmatch(path.name))
    # `Stored.at` returns None if the run of the plan has just ended and deleted the file.
    return [file for path in paths if (file := Stored.at(path))]


def _waits(waiting: Waiting, file: Stored, now_ms: int) -> str | None:
    """Which stage or run needs the plan in ``file``; None if none does, or the file is not a plan."""
    try:
        plan = Plan.read(Path(file.path))
    except RefusedError:
        return None
    stage = waiting.stage_of(plan.table, plan.id)
    if stage:
        return f"stage {stage.identifier} holds the result of the plan, which may still be published"
    run = waiting.run_of(plan.table, now_ms - file.age_ms(now_ms))
    return f"run {run} is working on {plan.table}" if run else None


PARTS: Final = 4
"""Number of path parts that identify a job's result: suite, run name, time and batch."""
UNFINISHED: Final = re.compile(r"\.(.+)\.(?:html|json)\.[0-9a-f]{8}")
"""Name of a page or verdict that is being written, or whose writer has died."""


@dataclass(frozen=True)
class _Report:
    """A verdict with its page, a refusal, or the result of a job.

    Documents are deleted before pages, so that a reader who finds a verdict also finds its page.
    """

    name: str
    documents: tuple[Stored, ...]
    pages: tuple[Stored, ...]

    @property
    def files(self) -> tuple[Stored, ...]:
        return self.documents + self.pages

    def age_ms(self, now_ms: int) -> int:
        """Milliseconds since the validation or, if no document is left, since the newest page was written."""
        return min(file.age_ms(now_ms) for file in self.documents or self.pages)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def verdict(self) -> JudgedPlan | None:
        """The verdict in the document; None if there is none."""
        return next(filter(None, (JudgedPlan.read(Path(file.path)) for file in self.documents)), None)


def old_reports(lake: Lake, limits: KeepLimits, now_ms: int, *, remove: bool) -> list[Finding]:
    """Findings about reports beyond ``limits``, whatever their table. ``remove`` deletes these reports.

    The newest report of each table and lane stays, and so does the report of a failed validation whose topic partition
    still waits. The front page lists deleted reports until it is rebuilt.
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
            garbage.append(Finding.of_files(Kind.REPORT, report.name, report.files, now_ms, goes=goes, reason=reason))
            if goes and remove:
                for file in report.files:
                    Path(file.path).unlink(missing_ok=True)
                    _prune(Path(file.path), report.name)
    return garbage


def _files_below(folder: Path) -> Iterator[Path]:
    """All files below ``folder``. Unlike ``Path.rglob``, this tolerates that old reports are deleted meanwhile."""
    for parent, _, names in os.walk(folder):
        for name in names:
            yield Path(parent, name)


def _reports(folder: Path) -> list[_Report]:
    """All reports below ``folder``. Other files there, such as the front page, belong to no report."""
    documents: dict[str, list[Stored]] = defaultdict(list)
    pages: dict[str, list[Stored]] = defaultdict(list)
    for path in _files_below(folder / RESULTS):
        if path.suffix == ".json" and len(path.relative_to(folder / RESULTS).parts) == PARTS:
            documents[path.parts[-3]] += _there(path)
    for place, files, suffix in (
        (VERDICTS, documents, ".json"),
        (REFUSALS, documents, ".json"),
        (PLANS, pages, ".html"),
    ):
        for path in _files_below(folder / place):
            unfinished = UNFINISHED.fullmatch(path.name)
            if unfinished or path.suffix == suffix:
                (pages if unfinished else files)[unfinished[1] if unfinished else path.stem] += _there(path)
    names = [name for name in documents | pages if documents[name] or pages[name]]
    return [_Report(name, tuple(documents[name]), tuple(pages[name])) for name in names]


def _there(path: Path) -> list[Stored]:
    """The file at ``path``, unless another collector has just deleted it."""
    file = Stored.at(path)
    return [file] if file else []


def _beyond(reports: list[_Report], limits: KeepLimits, now_ms: int) -> dict[str, str]:
    """The reasons why ``reports`` (given oldest first) are beyond ``limits``, by name."""
    reasons = {}
    total = sum(report.bytes for report in reports)
    for report in reports:
        age_ms = report.age_ms(now_ms)
        if not report.documents and age_ms > SETTLED_MS:
            reasons[report.name] = "the verdict of the page is gone"
        elif reason := limits.exceeded(age_ms, total):
            reasons[report.name] = reason
        else:
            continue
        total -= report.bytes
    return reasons


def _kept(lake: Lake, reports: list[_Report], verdicts: dict[str, JudgedPlan | None]) -> dict[str, str]:
    """The reasons why some of the reports in ``verdicts`` stay although they are beyond the limits, by name."""
    kept = {}
    waiting = Waiting(lake)
    # Search from the newest report on, until the newest report of every lane is found.
    missing = {(one.claim.table, one.claim.lane) for one in verdicts.values() if one}
    for report in reversed(reports):
        if not missing:
            break
        verdict = verdicts[report.name] if report.name in verdicts else report.verdict()
        if verdict and (place := (verdict.claim.table, verdict.claim.lane)) in missing:
            missing.remove(place)
            if report.name in verdicts:
                kept[report.name] = f"the newest report of {place[0]}, lane {place[1]}"
    for name, verdict in verdicts.items():
        if verdict and not verdict.verdict.passed and verdict.claim.plan_id in waiting.failed(verdict.claim.table):
            kept[name] = f"the validation failed, and {verdict.log} waits (firn retry {verdict.claim.table})"
    results = {verdict.verdict.validation: kept[name] for name, verdict in verdicts.items() if verdict and name in kept}
    return kept | {name: why for name, why in results.items() if name in verdicts}


def _prune(path: Path, name: str) -> None:
    """Delete the empty folders of report ``name`` above its file ``path``."""
    if name in path.parts:
        for folder in path.parents[: path.parts[::-1].index(name)]:
            with suppress(OSError):
                folder.rmdir()
