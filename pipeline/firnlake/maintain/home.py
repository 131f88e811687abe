"""Data-quality reports in Firn's home: limits of age and size apply to them.

A verdict and its page have the same name. Great Expectations keeps the result of a job as
``results/<suite>/<run name>/<time>/<batch>.json``; it is a report of its own here. The limits are settings of the
machine, because the home serves many tables.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.deleter import Finding, Kind
from firnlake.iceberg.files import Stored
from firnlake.table.policy import DAY_MS, GIB, UNLIMITED
from firnlake_expectations.templates import PLANS, REFUSALS, RESULTS, VERDICTS

RESTED_MS: Final = 3_600_000
"""Milliseconds since the last write to a file during which no limit of size ends it."""
_UNFINISHED: Final = re.compile(r"\.(.+)\.(?:html|json)\.[0-9a-f]{8}")
"""Name of a page or verdict that is being written, or whose writer has died."""
_RESULT_PARTS: Final = 4
"""Number of path parts that identify a job's result: suite, run name, time and batch."""


@dataclass(frozen=True)
class _Limits:
    """A file older than ``age_ms`` milliseconds goes, and so do the oldest files while all together have more than
    ``bytes``. The settings have the names ``<name>_AGE_MS`` and ``<name>_BYTES``."""

    name: str
    age_ms: int
    bytes: int

    @classmethod
    def of(cls, name: str, age_ms: int, size: int) -> "_Limits":
        """The settings, or the defaults ``age_ms`` and ``size``; raises RefusedError for one that is no number."""
        return cls(name, _setting(f"{name}_AGE_MS", age_ms), _setting(f"{name}_BYTES", size))

    def exceeded(self, age_ms: int, total: int) -> str | None:
        """Why the oldest item, of age ``age_ms``, goes if all items have ``total`` bytes; None if it stays."""
        if self.age_ms != UNLIMITED and age_ms > self.age_ms:
            return f"older than {self.name}_AGE_MS = {self.age_ms}"
        if self.bytes != UNLIMITED and total > self.bytes and age_ms > RESTED_MS:
            return f"the oldest, beyond {self.name}_BYTES = {self.bytes}"
        return None


def _setting(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    if text == str(UNLIMITED) or (text.isascii() and text.isdigit()):
        return int(text)
    raise RefusedError(f"{name} is {text!r}; allowed: a whole number, 0 or more, or {UNLIMITED} for no limit")


def maintain_home(lake: Lake, now_ms: int, *, remove: bool) -> list[Finding]:
    """Findings about plan files and reports of all tables in the home of ``lake``; ``remove`` deletes what goes.

    A plan is published within two days or never, so a plan file of three days serves nobody. The front page lists
    deleted reports until it is rebuilt. Raises RefusedError for a wrong limit.
    """
    reports = _Limits.of("FIRN_REPORTS", 90 * DAY_MS, 10 * GIB)
    return [
        *_old(Kind.REPORT, _reports(lake.reports_folder), reports, now_ms, remove=remove),
    ]


def _old(
    kind: Kind, items: Mapping[str, list[Stored]], limits: _Limits, now_ms: int, *, remove: bool
) -> Iterator[Finding]:
    """Findings about the ``items``, files by name, that are beyond the ``limits``, the oldest first."""
    ages = {name: min(file.age_ms(now_ms) for file in files) for name, files in items.items()}
    total = sum(file.bytes for files in items.values() for file in files)
    for name in sorted(items, key=lambda one: -ages[one]):
        if reason := limits.exceeded(ages[name], total):
            total -= sum(file.bytes for file in items[name])
            yield Finding.of_files(kind, name, items[name], now_ms, goes=True, reason=reason)
            for file in items[name] if remove else ():
                Path(file.path).unlink(missing_ok=True)
                _prune(Path(file.path), name)


def _reports(folder: Path) -> Mapping[str, list[Stored]]:
    """The files of each report below ``folder``, documents before pages, so that who finds a verdict finds its page.

    Other files there, such as the front page, belong to no report.
    """
    found: dict[str, list[Stored]] = defaultdict(list)
    for place, suffix in ((RESULTS, ".json"), (VERDICTS, ".json"), (REFUSALS, ".json"), (PLANS, ".html")):
        for parent, _, names in os.walk(folder / place):
            for path in (Path(parent, name) for name in names):
                unfinished = _UNFINISHED.fullmatch(path.name)
                parts = path.relative_to(folder / place).parts
                if place == RESULTS and len(parts) != _RESULT_PARTS:
                    continue
                name = path.parts[-3] if place == RESULTS else unfinished[1] if unfinished else path.stem
                if (unfinished or path.suffix == suffix) and (file := Stored.at(path)):
                    found[name].append(file)
    return found


def _prune(path: Path, name: str) -> None:
    """Delete the empty folders of report ``name`` above its file ``path``."""
    if name in path.parts:
        for folder in path.parents[: path.parts[::-1].index(name)]:
            with suppress(OSError):
                folder.rmdir()
