"""What a table's data-quality page tells: kept or not, what was looked at and what was not, tombstones, and the trend.

Its figures come from the stored verdicts, and from what the pipeline last saw of the table.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from firnlake_expectations.templates import REFUSALS, TABLES, new_name, read_document, write_document
from firnlake_expectations.wording import count, fates, file_name, log_name, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from firnlake_expectations.claim import Verdict


LONG_AGO_MS = 7 * 86_400_000
"""A topic partition that was not judged for this time is listed."""
PUBLISHED = 1_000
"""Maximum number of runs of which it is known what published them: more than a page lists verdicts."""
RUNS = 30
"""Maximum number of runs that a page shows."""


def page_of(table: str) -> str:
    """Path of the page of `table` under the reports folder."""
    return f"{TABLES}/{file_name(table)}.html"


def report_of(table: str) -> str:
    """The address of that page, relative to the folder that has the reports folder."""
    return f"reports/{quote(page_of(table))}"


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


class NotJudged(NamedTuple):
    """A topic partition that was not judged for a long time; `last_ms` is the last time, None if it never was."""

    name: str
    condition: str
    last_ms: int | None


@dataclass(frozen=True, slots=True)
class Seen:
    """What the pipeline saw of `table` at `taken_ms`.

    topic_partitions   the condition of each topic partition, by its name: `idle`, `due`, `waiting` …
    held               why a topic partition waits for a person, by its name
    published          the snapshot that published the plans of a run, by the name of Great Expectations' run
    mended             what the newest mendings took from main (C36), in words, newest first
    """

    table: str
    snapshot_id: int | None
    taken_ms: int
    topic_partitions: dict[str, str]
    held: dict[str, str]
    tombstones: Tombstones
    published: dict[str, int]
    mended: tuple[str, ...] = ()

    def write(self, reports: Path) -> Path:
        """Store this under `reports`, in place of what was seen before. What published a run stays known when the
        snapshot expires."""
        path = (reports / page_of(self.table)).with_suffix(".json")
        before = read_document(path, Seen)
        known = [*self.published.items(), *(before.published.items() if before else ())]
        # The newest come first; what was published does not change.
        return write_document(path, replace(self, published=dict(list(dict(known).items())[:PUBLISHED])))


@dataclass(frozen=True, slots=True)
class Refusal:
    """A plan of `lane` that failed in `step` at `refused_ms`, before the judge saw a result of it; times are epoch
    milliseconds. The document of a failed plan goes when the plan is tried again (C20); this one stays as long as a
    verdict does.

    now_ms   the plan's clock, which is the same for all plans of one run
    records  the number of records that the plan was to read
    """

    table: str
    topic: str
    partition: int
    lane: str
    plan_id: str
    now_ms: int
    records: int
    step: str
    reason: str
    refused_ms: int

    @property
    def log(self) -> str:
        """The topic partition."""
        return log_name(self.topic, self.partition)

    def write(self, reports: Path) -> Path:
        """Store this as a new file under `reports`; raises OSError if that is not possible."""
        return write_document(reports / REFUSALS / f"{new_name(self.refused_ms, self.plan_id)}.json", self)


@dataclass(frozen=True, slots=True)
class Run:
    """The plans of a table that were made with the same clock, as one run of Firn makes them."""

    now_ms: int
    judged: Sequence[Verdict]
    refused: Sequence[Refusal]
    """The newest refusal of each plan that failed before it was judged, even if a later try of it was judged."""

    @property
    def plans(self) -> int:
        """Number of plans."""
        return len({one.claim.plan_id for one in self.judged} | {one.plan_id for one in self.refused})

    @property
    def also_gone(self) -> str:
        """What went in addition to records superseded or expired, and to tombstones."""
        gone = Counter[str]()
        for one in self.judged:
            gone.update(one.claim.gone)
        return fates(gone, but=("superseded", "expired", "tombstones_removed"))

    @property
    def failed(self) -> int:
        """Number of plans that break a promise."""
        return sum(not one.passed for one in self.judged)

    @property
    def records(self) -> int:
        """Number of records that were looked at."""
        return sum(one.claim.records_in for one in self.judged)


@dataclass(frozen=True)
class TableReport:
    """All that the pages tell about `table` at `now_ms`. Verdicts and refusals are given newest first."""

    table: str
    verdicts: Sequence[Verdict]
    refusals: Sequence[Refusal]
    seen: Seen | None
    now_ms: int

    @cached_property
    def newest(self) -> list[Verdict]:
        """The newest verdict of each topic partition and lane, by topic."""
        newest: dict[tuple[str, int, str], Verdict] = {}
        for one in self.verdicts:
            newest.setdefault((one.claim.topic, one.claim.partition, one.claim.lane), one)
        return sorted(newest.values(), key=lambda one: one.claim.topic)

    @property
    def broken(self) -> list[Verdict]:
        """The newest verdicts that failed: what they judged is not published."""
        return [one for one in self.newest if not one.passed]

    @cached_property
    def runs(self) -> list[Run]:
        """The newest runs, newest first."""
        judged: dict[int, list[Verdict]] = defaultdict(list)
        for one in self.verdicts:
            judged[one.claim.now_ms].append(one)
        refused: dict[int, dict[str, Refusal]] = defaultdict(dict)
        for refusal in self.refusals:
            refused[refusal.now_ms].setdefault(refusal.plan_id, refusal)
        newest = sorted({*judged, *refused}, reverse=True)[:RUNS]
        return [Run(now_ms, judged.get(now_ms, ()), list(refused.get(now_ms, {}).values())) for now_ms in newest]

    @cached_property
    def not_judged(self) -> list[NotJudged]:
        """The topic partitions that were not judged for a long time; those that never were come first."""
        if self.seen is None:
            return []
        last: dict[str, int] = {}
        for one in self.verdicts:
            last.setdefault(one.claim.log, one.validated_ms)
        since = self.now_ms - LONG_AGO_MS
        late = [
            NotJudged(name, condition, last.get(name))
            for name, condition in self.seen.topic_partitions.items()
            if last.get(name, 0) < since
        ]
        return sorted(late, key=lambda one: (one.last_ms or 0, one.name))

    @property
    def held(self) -> Mapping[str, str]:
        """Why topic partitions wait for a person, by name: nothing of them is judged until somebody acts."""
        return self.seen.held if self.seen else {}

    @property
    def pending(self) -> str:
        """How many topic partitions are due, or wait for a time, in words; empty if none is."""
        conditions = list(self.seen.topic_partitions.values()) if self.seen else []
        due, waiting = conditions.count("due"), conditions.count("waiting")
        told = [f"{count(due, 'topic partition')} {'is' if due == 1 else 'are'} due"] if due else []
        if waiting:
            told.append(f"{count(waiting, 'topic partition')} {'waits' if waiting == 1 else 'wait'} for a time")
        return ", ".join(told)

    def held_of(self, topic: str) -> int:
        """Number of the topic's partitions that wait for a person."""
        return sum(name.rpartition("-")[0] == plain(topic) for name in self.held)

    def snapshot_of(self, one: Verdict) -> int | None:
        """The snapshot that published the plan; None if it is not among the last ones."""
        return self.seen.published.get(one.validation) if self.seen and one.passed else None


def tables_of(
    verdicts: Iterable[Verdict], refusals: Iterable[Refusal], seen: Mapping[str, Seen], now_ms: int
) -> list[TableReport]:
    """A report for each table that has `verdicts` or `refusals` or was `seen`, by name."""
    judged: dict[str, list[Verdict]] = defaultdict(list)
    for one in verdicts:
        judged[one.claim.table].append(one)
    refused: dict[str, list[Refusal]] = defaultdict(list)
    for refusal in refusals:
        refused[refusal.table].append(refusal)
    return [
        TableReport(name, judged.get(name, ()), refused.get(name, ()), seen.get(name), now_ms)
        for name in sorted({*judged, *refused, *seen})
    ]
