"""The data-quality pages: a front page, a page per table, and a page per verdict; and the page of a certificate.

They tell whether the promises are kept, what was looked at and what was not, tombstones, and the trend. Their figures
come from the stored verdicts, and from what the pipeline last saw of a table.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from firnlake_expectations.case import Verdict
from firnlake_expectations.wording import count, fates, file_name, moment, plain, printable, shown, size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


T = TypeVar("T")

RESULTS = "results"
"""Folder of Great Expectations' results below the reports: suite, run name, time and batch."""
VERDICTS = "verdicts"
"""Folder of the verdicts below the reports. Their names begin with the time, so they sort by it."""
PLANS = "plans"
"""Folder of the verdicts' pages below the reports."""
TABLES = "tables"
"""Folder of the tables' pages below the reports."""
CERTIFICATES = "erasures"
"""Folder of the certificates below the reports, with one folder per table."""
LONG_AGO_MS = 7 * 86_400_000
"""A topic partition that was not judged for this time is listed."""
PUBLISHED = 1_000
"""Maximum number of runs of which it is known what published them: more than a page lists verdicts."""
RUNS = 30
"""Maximum number of runs that a page shows."""


NAME = re.compile(r"\w[\w.-]{0,199}", re.ASCII)
"""Pattern of a verdict's name, which becomes the name of a page."""
NEWEST = 500
"""Maximum number of verdicts on a table's page; the pages of older ones stay."""
LISTED = 20
"""Maximum number of lines in any other list: broken promises, what was not judged."""
POSITIONS = 100
"""Maximum number of keys' positions that the page of a certificate lists; the document has all."""


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


def write_page(target: Path, page: str) -> Path:
    """Write the page under a temporary name first, so that no reader sees half of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{uuid.uuid4().hex}")
    unfinished.write_text(page, encoding="utf-8")
    unfinished.replace(target)
    return target


def new_name(at_ms: int, plan_id: str) -> str:
    """A new name for a document about a plan; it begins with the time, epoch milliseconds, and sorts by it."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{at:%Y%m%dT%H%M%S.%fZ}-{re.sub(r'[^A-Za-z0-9_-]', '_', plan_id)[:100]}-{uuid.uuid4().hex[:8]}"


def write_document(target: Path, document: object) -> Path:
    """Store a document as JSON; raises OSError if that is not possible."""
    return write_page(target, to_json(document).decode())


def read_document(path: Path, kind: type[T]) -> T | None:
    """The document of this `kind` that was stored as JSON at `path`; None if it is gone, damaged, or not Firn's."""
    try:
        found: T = _adapter(kind).validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
    return found


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def _documents(folder: Path, kind: type[T]) -> list[T]:
    """The documents in the folder, the newest names first."""
    paths = sorted(folder.glob("[!.]*.json"), reverse=True)
    return [one for path in paths if (one := read_document(path, kind))]


@dataclass(frozen=True, slots=True)
class Run:
    """The plans of a table that were made with the same clock, as one run of Firn makes them, and judged."""

    now_ms: int
    judged: Sequence[Verdict]

    @property
    def plans(self) -> int:
        """Number of plans."""
        return len({one.claim.plan_id for one in self.judged})

    @property
    def gone(self) -> str:
        """What became of the records that were read and not kept, in words."""
        return fates(sum((one.claim.counts for one in self.judged), Counter()))

    @property
    def failed(self) -> int:
        """Number of plans that break a promise."""
        return sum(not one.passed for one in self.judged)

    @property
    def records(self) -> int:
        """Number of records that were looked at."""
        return sum(one.claim.counts["records_in"] for one in self.judged)


@dataclass(frozen=True)
class TableReport:
    """All that the pages tell about `table` at `now_ms`. Verdicts are given newest first."""

    table: str
    verdicts: Sequence[Verdict]
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
        return [Run(now_ms, judged[now_ms]) for now_ms in sorted(judged, reverse=True)[:RUNS]]

    @cached_property
    def not_judged(self) -> list[tuple[str, str, int | None]]:
        """The topic partitions that were not judged for a long time, each with its condition and the last time, None if
        it never was; these come first."""
        if self.seen is None:
            return []
        last: dict[str, int] = {}
        for one in self.verdicts:
            last.setdefault(one.claim.log, one.validated_ms)
        since = self.now_ms - LONG_AGO_MS
        late = [
            (name, condition, last.get(name))
            for name, condition in self.seen.topic_partitions.items()
            if last.get(name, 0) < since
        ]
        return sorted(late, key=lambda one: (one[2] or 0, one[0]))

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


def build_pages(reports: Path, now_ms: int | None = None) -> Path:
    """Build the pages for what is stored under `reports`, as of `now_ms` (epoch milliseconds; default: now).

    Returns the path of the front page, `index.html`, which also lists the certificates of erased keys. Verdicts never
    change, so their existing pages are kept. Each page is written atomically; when several processes build at once,
    the last front page wins.
    """
    now = int(datetime.now(UTC).timestamp() * 1000) if now_ms is None else now_ms
    verdicts: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in _documents(reports / VERDICTS, Verdict):
        if NAME.fullmatch(verdict.run_name):
            verdicts[verdict.claim.table].append(verdict)
    seen = {was.table: was for was in _documents(reports / TABLES, Seen)}
    tables = [TableReport(name, verdicts.get(name, ()), seen.get(name), now) for name in sorted({*verdicts, *seen})]
    certificates = [page.relative_to(reports) for page in sorted((reports / CERTIFICATES).glob("*/request-*.html"))]
    pages = environment()
    pages.globals.update(most_runs=RUNS, page_of=page_of, newest=NEWEST, listed=LISTED)
    for table in tables:
        for verdict in table.verdicts:
            target = reports / PLANS / f"{verdict.run_name}.html"
            if not target.exists():
                write_page(target, pages.get_template("plan.html.j2").render(verdict=verdict, claim=verdict.claim))
        certified = [page for page in certificates if page.parent.name == table.table]
        page = pages.get_template("table.html.j2").render(report=table, certificates=certified)
        write_page(reports / page_of(table.table), page)
    front = pages.get_template("index.html.j2").render(tables=tables, now_ms=now, certificates=certificates)
    return write_page(reports / "index.html", front)


PAGES = Path(__file__).parent / "pages"

CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Content policy: no page loads anything or runs a script, whatever data it shows."""


def environment() -> Environment:
    """The templates, with filters for numbers, sizes and times; all text is escaped."""
    templates = Environment(
        loader=FileSystemLoader(PAGES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals["policy"] = CONTENT_POLICY
    templates.filters.update(
        moment=moment,
        second=lambda at: moment(at).partition(".")[0],
        size=size,
        count=count,
        number=lambda number: f"{number:,}",
        clauses=clauses,
        fates=fates,
        count_of=lambda things, noun: count(len(things), noun),
    )
    return templates


def clauses(text: str) -> Markup:
    """A message with each clause on a line of its own, and the commands in backticks as code."""
    escaped = str(Markup("<br>").join(map(printable, text.split("; "))))
    return Markup(
        re.sub("`([^`]+)`|(?<=: )(firn [^<`]+)(?=<br>|$)", lambda one: f"<code>{one[1] or one[2]}</code>", escaped)
    )


def certificate_page(content: Mapping[str, Any], document: str) -> str:
    """The page for the `content` of a certificate; `document` is the name of the JSON file next to the page."""
    return environment().get_template("certificate.html.j2").render(one=content, most=POSITIONS, document=document)


_CERTIFICATE = re.compile(r"request-[0-9a-f]{32}\.(json|html)", re.ASCII)


def table_of(reports: Path, path: str) -> str | None:
    """The table that a page of a verdict or a table, or a page or document of a certificate, is about.

    `path` is relative to the folder `reports`; None for any other file.
    """
    parts = PurePosixPath(path).parts
    file = reports.joinpath(*parts)
    try:
        # Neither a part of the path nor a symbolic link may lead out of the folder.
        if not file.is_file() or not file.resolve().is_relative_to(reports.resolve()):
            return None
    except OSError:
        return None
    match parts, file.suffix:
        case [(folder, name), ".html"] if folder == TABLES:
            seen = read_document(file.with_suffix(".json"), Seen)
            return seen.table if seen else None
        case [(folder, name), ".html"] if folder == PLANS:
            stored = read_document((reports / VERDICTS / name).with_suffix(".json"), Verdict)
            return stored.claim.table if stored else None
        case [(folder, table, name), _] if folder == CERTIFICATES and _CERTIFICATE.fullmatch(name):
            return table
    return None
