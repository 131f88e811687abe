"""What a table's data-quality page tells: kept or not, what was looked at and what was not, tombstones, and the trend.

Its figures come from the stored verdicts, and from what the pipeline last saw of the table.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Self
from urllib.parse import quote

from firnlake_expectations.claim import Claim, Verdict
from firnlake_expectations.templates import PLANS, TABLES, write_page
from firnlake_expectations.wording import count, fates, file_name, log_name, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import TypeAlias

    from firnlake_expectations.refusals import Refusal


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


Outcome: TypeAlias = Literal["kept", "dropped", "lost"]
OUTCOMES: Mapping[Outcome, str] = {
    "kept": "on branch firn_mended, until somebody drops the branch",
    "dropped": "no longer on branch firn_mended",
    "lost": "lost: the store had no such file",
}
"""What became of a file that a mending took."""


@dataclass(frozen=True, slots=True)
class MendedFile:
    """A data file that a mending has taken from main (C36).

    at_ms            when, epoch milliseconds; None if no summary tells any more
    snapshot_id      the snapshot of main that the mending made; None if no summary of main tells of it
    topic_partition  None if it is unknown; so are `base_offset`, `last_offset` (inclusive) and `records`
    """

    at_ms: int | None
    snapshot_id: int | None
    path: str
    topic_partition: str | None
    base_offset: int | None
    last_offset: int | None
    records: int | None
    outcome: Outcome

    @property
    def offsets(self) -> str:
        """The offsets in words: `0 to 99`, or `unknown`."""
        return "unknown" if self.base_offset is None else f"{self.base_offset} to {self.last_offset}"


@dataclass(frozen=True, slots=True)
class NotJudged:
    """A topic partition that was not judged for a long time; `last_ms` is the last time, None if it never was."""

    name: str
    condition: str
    why: str
    only_retained: bool
    """True if its topic's policy is `delete` alone."""
    last_ms: int | None


_NEVER_DROPPED = (
    "cleanup.policy is delete without a limit of retention: nothing is dropped, so there is nothing to judge"
)
_ONLY_EXPIRED = (
    "cleanup.policy is delete, so no key is compacted. Retention ({}) has a promise of its own, that only expired "
    "segments are dropped: it is judged when segments are dropped, and none was within 7 days"
)
_WAITS = "waits for a person"
_WHY = {
    "idle": "nothing to rewrite",
    "due": "work is due; the next run judges it",
    "waiting": "has segments that are not to be cleaned yet",
    "refused": _WAITS,
    "uncleanable": _WAITS,
}
"""Why a topic partition that Firn compacts may not have been judged for long, by its condition."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the pipeline saw of `table` at `taken_ms`.

    topic_partitions   the condition of each topic partition, by its name: `idle`, `due`, `waiting` …
    held               why a topic partition waits for a person, by its name
    published          the snapshot that published the plans of a run, by the name of Great Expectations' run
    retained           the limits of retention in words, by topic whose policy is `delete` alone; empty without a limit
    mended             what the newest mendings took from main, newest first
    """

    table: str
    snapshot_id: int | None
    taken_ms: int
    topic_partitions: Mapping[str, str]
    held: Mapping[str, str]
    tombstones: Tombstones
    published: Mapping[str, int]
    retained: Mapping[str, str] = field(default_factory=dict)
    mended: Sequence[MendedFile] = ()

    def write(self, reports: Path) -> Path:
        """Store this under `reports`, in place of what was seen before. What published a run stays known when the
        snapshot expires."""
        path = (reports / page_of(self.table)).with_suffix(".json")
        before = Seen.read(path)
        known = [*self.published.items(), *(before.published.items() if before else ())]
        # The newest come first; what was published does not change.
        told = asdict(replace(self, published=dict(list(dict(known).items())[:PUBLISHED])))
        return write_page(path, json.dumps(told))

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read the document at `path`; None if it is gone, damaged, or not Firn's."""
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            mended = tuple(MendedFile(**one) for one in told.get("mended", ()))
            return cls(**{**told, "tombstones": Tombstones(**told["tombstones"]), "mended": mended})
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None

    def not_judged(self, name: str, last_ms: int | None) -> NotJudged:
        """The topic partition ``name``, which was last judged long ago at ``last_ms``, and why not since."""
        condition, limits = self.topic_partitions[name], self.retained.get(name.rpartition("-")[0])
        why = _WHY.get(condition, "")
        if limits is not None and why != _WAITS:
            why = _NEVER_DROPPED
            if limits:
                why = _ONLY_EXPIRED.format(limits)
        return NotJudged(name, condition, why, limits is not None, last_ms)


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
    judged: Sequence[JudgedPlan]
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
        return sum(not one.verdict.passed for one in self.judged)

    @property
    def records(self) -> int:
        """Number of records that were looked at."""
        return sum(one.claim.records_in for one in self.judged)


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
    """All that the pages tell about `table` at `now_ms`. Verdicts and refusals are given newest first."""

    table: str
    verdicts: Sequence[JudgedPlan]
    refusals: Sequence[Refusal]
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
        judged: dict[int, list[JudgedPlan]] = defaultdict(list)
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
            last.setdefault(one.log, one.validated_ms)
        since = self.now_ms - LONG_AGO_MS
        late = [
            self.seen.not_judged(name, last.get(name))
            for name in self.seen.topic_partitions
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

    def snapshot_of(self, one: JudgedPlan) -> int | None:
        """The snapshot that published the plan; None if it is not among the last ones."""
        return self.seen.published.get(one.verdict.validation) if self.seen and one.verdict.passed else None


def tables_of(
    verdicts: Iterable[JudgedPlan], refusals: Iterable[Refusal], seen: Mapping[str, Seen], now_ms: int
) -> list[TableReport]:
    """A report for each table that has `verdicts` or `refusals` or was `seen`, by name."""
    judged: dict[str, list[JudgedPlan]] = defaultdict(list)
    for one in verdicts:
        judged[one.claim.table].append(one)
    refused: dict[str, list[Refusal]] = defaultdict(list)
    for refusal in refusals:
        refused[refusal.table].append(refusal)
    return [
        TableReport(name, judged.get(name, ()), refused.get(name, ()), seen.get(name), now_ms)
        for name in sorted({*judged, *refused, *seen})
    ]
