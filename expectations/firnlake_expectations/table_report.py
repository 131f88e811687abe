"""What a table's data-quality page tells: kept or not, what was looked at and what was not, tombstones, and the trend.

Its figures come from the stored verdicts, and from what the pipeline last saw of the table.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Self

from firnlake_expectations.claim import Claim, Verdict
from firnlake_expectations.templates import PLANS, TABLES, write_page
from firnlake_expectations.wording import file_name, log_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path


LONG_AGO_MS = 7 * 86_400_000
"""A topic partition that was not judged for this time is listed."""
RUNS = 30
"""Maximum number of runs that a page shows."""


def page_of(table: str) -> str:
    """Path of the page of `table` under the reports folder."""
    return f"{TABLES}/{file_name(table)}.html"


@dataclass(frozen=True, slots=True)
class Tombstones:
    """The tombstones in the segments of main, as far as their metadata tells; times are epoch milliseconds.

    known     number of tombstones; None if a segment does not tell
    stamped   records with a delete horizon (C8): tombstones and transaction markers
    due       those that may be past their horizon: an upper bound
    overdue   those that may be past it by more than `full.interval.ms`: an upper bound
    oldest_ms the earliest horizon; None without one
    """

    known: int | None = 0
    stamped: int = 0
    due: int = 0
    overdue: int = 0
    oldest_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What the pipeline saw of `table` at `taken_ms`.

    topic_partitions   the condition of each topic partition, by its name: `idle`, `due`, `waiting` …
    held               why a topic partition waits for a person, by its name
    published          the snapshot that published the plans of a run, by the name of Great Expectations' run
    """

    table: str
    snapshot_id: int | None
    taken_ms: int
    topic_partitions: Mapping[str, str]
    held: Mapping[str, str]
    tombstones: Tombstones
    published: Mapping[str, int]

    def write(self, reports: Path) -> Path:
        """Store this under `reports`, in place of what was seen before."""
        return write_page((reports / page_of(self.table)).with_suffix(".json"), json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read the document at `path`; None if it is gone, damaged, or not Firn's."""
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{**told, "tombstones": Tombstones(**told["tombstones"])})
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return None


@dataclass(frozen=True, slots=True)
class JudgedPlan:
    """One stored verdict as the pages show it."""

    claim: Claim
    verdict: Verdict
    validated_ms: int

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """The verdict stored at `path`; None if it is gone, damaged, or not Firn's."""
        try:
            document = json.loads(path.read_bytes())
            return cls(
                claim=Claim.from_dict(document["claim"]),
                verdict=Verdict.from_dict(document["verdict"]),
                validated_ms=int(datetime.fromisoformat(document["validated"]).timestamp() * 1000),
            )
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None

    @property
    def log(self) -> str:
        """The topic partition."""
        return log_name(self.claim.topic, self.claim.partition)

    @property
    def page(self) -> str:
        """Path of the verdict's page under the reports folder."""
        return f"{PLANS}/{self.verdict.run_name}.html"


@dataclass(frozen=True, slots=True)
class Run:
    """The plans of a table that were made with the same clock, as one run of Firn makes them."""

    now_ms: int
    plans: Sequence[JudgedPlan]

    @property
    def failed(self) -> int:
        """Number of plans that break a promise."""
        return sum(not one.verdict.passed for one in self.plans)

    @property
    def records(self) -> int:
        """Number of records that were looked at."""
        return sum(one.claim.records_in for one in self.plans)


@dataclass(frozen=True, slots=True)
class Topic:
    """The newest verdicts of a topic."""

    name: str
    newest: Sequence[JudgedPlan]
    """The newest verdict of each topic partition and lane."""

    @property
    def broken(self) -> list[JudgedPlan]:
        """Those that failed."""
        return [one for one in self.newest if not one.verdict.passed]

    @property
    def judged(self) -> int:
        """Number of topic partitions."""
        return len({one.log for one in self.newest})

    @property
    def records(self) -> int:
        """Number of records that were looked at."""
        return sum(one.claim.records_in for one in self.newest)

    @property
    def last_ms(self) -> int:
        """When the topic was last judged."""
        return max(one.validated_ms for one in self.newest)


@dataclass(frozen=True)
class TableReport:
    """All that the pages tell about `table` at `now_ms`. The verdicts are given newest first."""

    table: str
    verdicts: Sequence[JudgedPlan]
    seen: Seen | None
    now_ms: int

    @cached_property
    def topics(self) -> list[Topic]:
        """The topics that were judged, by name."""
        newest: dict[tuple[str, int, str], JudgedPlan] = {}
        for one in self.verdicts:
            newest.setdefault((one.claim.topic, one.claim.partition, one.claim.lane), one)
        by_topic = defaultdict(list)
        for one in newest.values():
            by_topic[one.claim.topic].append(one)
        return [Topic(name, by_topic[name]) for name in sorted(by_topic)]

    @cached_property
    def broken(self) -> list[JudgedPlan]:
        """The newest verdicts that failed: what they judged is not published."""
        return [one for topic in self.topics for one in topic.broken]

    @cached_property
    def runs(self) -> list[Run]:
        """The newest runs, newest first."""
        ordered = sorted(self.verdicts, key=lambda one: -one.claim.now_ms)
        by_clock = groupby(ordered, key=lambda one: one.claim.now_ms)
        return [Run(now_ms, list(plans)) for now_ms, plans in by_clock][:RUNS]

    @cached_property
    def not_judged(self) -> list[tuple[str, str, int | None]]:
        """The topic partitions that were not judged for a long time: name, condition, and the last time if any.

        Those that never were come first.
        """
        last: dict[str, int] = {}
        for one in self.verdicts:
            last.setdefault(one.log, one.validated_ms)
        parts = self.seen.topic_partitions if self.seen else {}
        since = self.now_ms - LONG_AGO_MS
        late = [(name, condition, last.get(name)) for name, condition in parts.items() if last.get(name, 0) < since]
        return sorted(late, key=lambda one: (one[2] or 0, one[0]))

    @property
    def held(self) -> Mapping[str, str]:
        """Why topic partitions wait for a person, by name: nothing of them is judged until somebody acts."""
        return self.seen.held if self.seen else {}

    def snapshot_of(self, one: JudgedPlan) -> int | None:
        """The snapshot that published the plan; None if it is not among the last ones."""
        return self.seen.published.get(one.verdict.validation) if self.seen and one.verdict.passed else None


def tables_of(verdicts: Iterable[JudgedPlan], seen: Mapping[str, Seen], now_ms: int) -> list[TableReport]:
    """A report for each table that has `verdicts` or was `seen`, by name."""
    by_table: dict[str, list[JudgedPlan]] = defaultdict(list)
    for one in verdicts:
        by_table[one.claim.table].append(one)
    return [TableReport(name, by_table[name], seen.get(name), now_ms) for name in sorted({*by_table, *seen})]
