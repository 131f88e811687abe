"""A table under test, driven by lines of text as a user drives one: land records, run lanes, ask what readers see.

    create delete.retention.ms=0     a table with Kafka's columns, and thresholds of 2 unless a property says otherwise
    land a=1 b=1 | a= -=x            commits of `firn land`, parted by |; see `records` for how records are written
    full!                            run a lane, `!` with force; says what became of the records
    at 1d                            the clock: a day after NOW
    read                             what readers see: a=@2+1d is a tombstone at offset 2 with its delete horizon
    firn status {table} --check      the command itself: what it prints, and its exit code unless that is 0, or 1 where
                                     the last line is a refusal, `firn: …`
    only full firn plan {table}      of what a command answers, the lines with a word
    step publish {stage}             a step of a run alone, as Airflow's tasks take it (`steps`)

A command is a lane, `run`, or a method ``do_…`` of Scenario. It answers with lines, in which what changes from run to
run is masked.
Firn itself is used through `firnlake.open` and the command alone; other writers are PyIceberg's.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections import Counter
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq

from firnlake import clock
from firnlake.errors import FirnError
from infra.foreign.files import files_under, on_disk
from tests.support.commands import command
from tests.support.disturbed import DISTURBING, Disturbed
from tests.support.log_segments import Entry, batch, marker, segment
from tests.support.records import DAY, NOW, Record, json_lines, rows_of, span
from tests.support.views import Views
from tests.support.writers import Writers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from firnlake.door import OpenCatalog
    from firnlake.plan.make import LaneRun

LANES: Final = ("retain", "erase", "convert", "merge", "clean", "tier", "full")
_COUNTED: Final = (
    "superseded",
    "tombstones_removed",
    "expired",
    "quarantined",
    "aborted",
    "markers_removed",
    "erased",
    "repeated",
    "restored",
    "deleted",
)
_COMMAND_MASKS: Final = (
    (re.compile(r"\b\d+\.\d s\b"), "<seconds>"),
    (re.compile(r"\bsince \S+Z\b"), "since <time>"),
    (re.compile(r"\berased by \S+Z\b"), "erased by <time>"),
    (re.compile(r"\bof \S+Z \([^)]+ ago\)"), "of <time>"),
    (re.compile(r"(?<=/\.)(\w+)-\w{8}(?=')"), r"\1-<temp>"),
    (re.compile(r"\b[1-9][\d,.]* (bytes|[kMG]?B)\b"), "<bytes>"),
    (re.compile(r"(?<=\S) {2,}"), "  "),
    (re.compile(r"(?<=  \d  )\d[\d,]{2,}(?=  [\d–])"), "<bytes>"),
)


class Scenario(Writers, Views, Disturbed):
    """A table under test, with what its users do: each line is a command, and answers with lines."""

    def __init__(self, opened: OpenCatalog, folder: Path) -> None:
        super().__init__(opened, folder)
        self._stages: list[list[str]] = []
        self._clearing: list[str] = []
        self.passed = 0
        """By how long files are older than the store says."""

    def answer(self, line: str, text: Sequence[str] = ()) -> list[str]:
        """Do what ``line`` says, and return what there is to see, masked; a refusal is an answer as well.

        ``text`` is what stands beneath the command, such as the content of a file.
        """
        self.text = text
        name, _, rest = line.partition(" ")
        lane, force = name.removesuffix("!"), name.endswith("!")

        def act() -> Iterable[str]:
            if lane in (*LANES, "run"):
                return self._run(() if lane == "run" else (lane,), force, rest.split())
            return list(getattr(self, f"do_{name}")(rest))

        try:
            said = list(act() if name in DISTURBING else self.disturbed(act))
        except FirnError as error:
            said = [f"{type(error).__name__.removesuffix('Error').lower()}: {error}"]
        return [self.masked(one) for one in said]

    def play(self, *lines: str) -> list[str]:
        """Do ``lines`` one after the other, and return what all of them answer."""
        return [said for line in lines for said in self.answer(line)]

    def do_at(self, rest: str) -> Iterable[str]:
        self.now = NOW + span(rest)
        return ()

    def do_later(self, rest: str) -> Iterable[str]:
        """The clock: so long after the machine's, by which snapshots have their age. Files that are there by now, or
        come until the next such line, are older by as much."""
        passed, self.passed = self.passed, span(rest)
        self.now = clock.now_ms() + self.passed
        for path in files_under(on_disk(self.loaded().location())) if self.made else ():
            moment = path.stat().st_mtime_ns - (self.passed - passed) * 1_000_000
            os.utime(path, ns=(moment, moment))
        return ()

    def do_alone(self, _: str) -> Iterable[str]:
        """From here on, the table is in a lake of its own, for commands that look at all tables."""
        self.name = "db.orders"
        self.use(type(self.opened.lake).embedded(self.folder / "home"))
        return ()

    def do_adopt(self, rest: str) -> Iterable[str]:
        """Adopt the table; what is refused is told."""
        return self._quiet(shlex.split(f"adopt {self.name} {rest}"))

    def do_land(self, rest: str) -> Iterable[str]:
        for records in self.batches(rest):
            self.table.land(self.landing_file(records))
        return ()

    def do_cleaned(self, rest: str) -> Iterable[str]:
        """Land records, and clean them by lane full until, a day later, their tombstones are gone."""
        said = [one for line in (f"land {rest}", "full!", "at 1d", "full!") for one in self.answer(line)]
        assert "tombstones_removed" in said[-1], said
        return ()

    def do_log(self, rest: str) -> Iterable[str]:
        """Land log segments as Kafka's brokers write them.

        ``1>a=1`` is in a transaction of producer 1, ``1.2>a=1`` of its epoch 2; ``1>commit`` or ``1>abort`` ends it,
        ``1>commit@5`` at offset 5.
        """
        if not self.made:
            self.do_create("transactions")
        for text in rest.split("|"):
            batches = [self._log_batch(word) for word in text.split()]
            path = segment(self.folder / f"{next(self.numbers)}" / "orders-0", *batches)
            self.table.land(path)
        return ()

    def do_json(self, rest: str) -> Iterable[str]:
        """Land JSON lines: each a whole record, but for ``name=<JSON>`` and ``-name`` (see `records.json_lines`)."""
        return self._land_file("jsonl", json_lines(rest))

    def _run(self, lanes: Sequence[str], force: bool, words: Sequence[str]) -> list[str]:
        done = self.table.run(*lanes, force=force, until_idle="until-idle" in words)
        said = [line for lane in done for line in _outcome(lane, alone=bool(lanes))]
        return said or ["nothing due"]

    def do_plans(self, rest: str) -> Iterable[str]:
        """Plan a lane into stages, from which ``stage`` without a lane goes on."""
        lane, force = rest.removesuffix("!"), ["--force"] if rest.endswith("!") else []
        self.planned = self._firn("open", self.name, "--lane", lane, "--now", str(self.now), *force).splitlines()
        return ()

    def do_stage(self, rest: str) -> Iterable[str]:
        """Plan, compact and validate a lane, and publish nothing yet: what another command does now comes between."""
        if rest:
            self.do_plans(rest)
        if said := self.do_compact(""):
            return said
        self._firn("validate", *self.staged)
        return ()

    def do_compact(self, _: str) -> Iterable[str]:
        """Compact what ``plans`` has written; {stage} is its stage from here on."""
        if not self.planned:
            return ["nothing due"]
        compacted = json.loads(self._firn("compact", *self.planned, "--json"))
        self.staged = list(dict.fromkeys(one["stage"] for one in compacted))
        self._stages.append(self.staged)
        return ()

    def do_publish(self, rest: str) -> Iterable[str]:
        """Publish what ``stage`` has left, or left earlier: ``publish 0`` is the first; what is refused is told."""
        return self._quiet(["publish", *(self._stages[int(rest)] if rest else self.staged)])

    def do_plan(self, rest: str) -> Iterable[str]:
        """The plans of all lanes or some, and what is left out."""
        found = self.table.plan(*rest.split())
        plans = [f"{one.lane} {one.topic_partition}: {one.reason}" for work in found.values() for one in work.plans]
        return [*plans, *dict.fromkeys(line for work in found.values() for line in work.left())] or ["nothing due"]

    def do_look(self, rest: str) -> Iterable[str]:
        """What each lane says of a topic partition: the reason of its work, or what it waits for."""
        lanes = rest.split()
        explained = self.table.explain("orders-0")
        for outlook in explained.lanes:
            if not lanes or outlook.lane in lanes:
                state = f"due, {outlook.segments} segments" if outlook.plan else "waits"
                yield f"{outlook.lane} {state}: {outlook.reason.text}{_until(outlook.next_ms, self.now)}"
        yield from (f"blocked: {blocker.text}" for blocker in explained.obstacles)

    def do_status(self, _: str) -> Iterable[str]:
        """The condition of each topic partition, and what it waits for."""
        for part in self.table.status().partitions:
            yield f"{part.name}: {part.condition}, dirty ratio {part.dirty_ratio:.3g}"
            yield from (f"due {lane}: {why}" for lane, why in part.due.items())
            yield from (*part.blockers, *part.waiting)

    def do_explain(self, rest: str) -> Iterable[str]:
        """Each record of a key: kept or removed, and why."""
        found = self.table.explain_key(None if rest == "-" else rest.encode())
        for kept in found.kept:
            yield f"@{kept.record.offset} kept, {kept.reason.rule}: {kept.reason.text}"
        for removed in found.removed:
            yield f"@{removed.record.offset} removed, {removed.reason.rule}: {removed.reason.text}"

    def do_segment(self, rest: str) -> Iterable[str]:
        """What becomes of the segments with a name: the lanes that take them now, and why others do not."""
        for one in self.table.explain_segment(self.filled(rest)):
            yield from (f"{going.lane} takes it: {going.reason.text}" for going in one.going)
            yield from (f"waits, {reason.rule}: {reason.text}" for reason in one.waiting)
            yield from ([f"removed by {one.removed_by.lane}"] if one.removed_by else [])

    def do_verify(self, _: str) -> Iterable[str]:
        """The promises that the newest commit broke, or that it kept all."""
        for one in self.table.verify():
            yield f"{one.claim.lane}: " + ("kept" if one.passed else "broken")
            yield from (f"{row.contract} {row.name}: {row.observed}" for row in one.failures)

    def do_maintain(self, rest: str) -> Iterable[str]:
        """Which files went, by kind and reason."""
        found = self.table.maintain(dry_run=rest == "--dry-run")
        gone = ((one.kind, one.files, one.reason) for one in found if one.goes and one.files)
        return _summed(gone) or ["nothing to remove"]

    def do_maintained(self, rest: str) -> Iterable[str]:
        """As ``maintain``, with what has no files, and with what stays."""
        found = self.table.maintain(dry_run=rest == "--dry-run")
        return _summed(
            (
                f"{one.kind} {'goes' if one.goes else 'stays'}",
                one.files,
                f"{one.reason}, exit code {one.exit_code}" if one.exit_code else one.reason,
            )
            for one in found
        )

    def do_export(self, rest: str) -> Iterable[str]:
        """Export the quarantine to a new file of the folder, ``export lost.jsonl --partition orders-1``."""
        name, *options = rest.split()
        asked = ["quarantine", self.name, "--export", str(self.folder / name), *options]
        said = self._command(asked, {})
        self._clearing = shlex.split(said[-1].partition("firn ")[2])
        return said

    def do_clear(self, _: str) -> Iterable[str]:
        """Clear what the last export held, by the command that it printed."""
        return self._firn(*self._clearing, "--yes").splitlines()

    def do_mend(self, rest: str) -> Iterable[str]:
        """Take files from main that ``files`` has shown, as a person who says yes; only what is refused is told."""
        named = [word for number in rest.split() for word in ("--file", self.named[int(number)])]
        return self._quiet(["mend", self.name, *named, "--yes"])

    def do_ask(self, rest: str) -> Iterable[str]:
        """Request to erase keys, ``ask a hex:00ff --within 4d``; only what is refused is told."""
        keys, _, options = rest.partition("--")
        named = [word for key in keys.split() for word in ("--key", key)]
        more = shlex.split(f"--{options}") if options else []
        return self._quiet(["erase", self.name, *named, *more, "--now", str(self.now)])

    def do_erased(self, rest: str) -> Iterable[str]:
        """Erase keys by the machine's clock, and let maintenance run when older snapshots have expired."""
        self.do_set("erase.history=expire")
        self.do_later("0")
        said = [*self.do_ask(f"{rest} --within 4d"), *self.answer("erase!")]
        self.do_later("2d+1m")
        for _ in range(2):  # the second run expires what the first has rewritten without removed files
            self.table.maintain()
        return said

    def do_certify(self, rest: str) -> Iterable[str]:
        """Search all files: the certificates that can be issued, and what prevents others. `again` searches for what
        has a certificate already."""
        names = [path.name.partition(".")[0] for path in self._documents("*.certificate.json")]
        done = self.table.certify(*(names if rest == "again" else ()))
        yield from (f"issued for {one['topic']}" for one in done.issued)
        yield from (f"no certificate: {one.where}: {one.why}" for problems in done.blocked.values() for one in problems)
        if not done.issued and not done.blocked:
            yield "nothing to certify"

    def do_certificates(self, _: str) -> Iterable[str]:
        """What the certificates in the warehouse say."""
        for path in self._documents("*.certificate.json"):
            told = json.loads(path.read_bytes())
            yield " ".join(f"{name}={told[name]}" for name in ("topic", "keys", "in_time", "found_nowhere", "newer"))

    def do_requests(self, _: str) -> Iterable[str]:
        """How far each request to erase keys has come, and what it waits for."""
        for one in json.loads(self._firn("erase", self.name, "--status", "--json", "--now", str(self.now))):
            yield one["state"]
            yield from (f"{problem['where']}: {problem['why']}" for problem in one["problems"])

    def _documents(self, pattern: str) -> list[Path]:
        return sorted(on_disk(self.loaded().location()).rglob(pattern))

    def do_firn(self, rest: str) -> Iterable[str]:
        """The command in this process, at the clock where it takes one. It fills in what ``_filled`` knows."""
        return self._command(shlex.split(self.filled(rest)), {})

    def do_step(self, rest: str) -> Iterable[str]:
        """A step of a run (`steps`), ``step publish {stage}``."""
        return self.do_firn(rest)

    def do_only(self, rest: str) -> Iterable[str]:
        """Of what a command answers, the lines with a word, ``only waiting firn adopt …``."""
        word, _, line = rest.partition(" ")
        return [one for one in self.answer(line) if word in one] or ["none"]

    def do_env(self, rest: str) -> Iterable[str]:
        """The command with variables of the environment before it: ``env COLUMNS=80 firn status``."""
        words = shlex.split(self.filled(rest))
        at = words.index("firn")
        return self._command(words[at + 1 :], dict(word.split("=", 1) for word in words[:at]))

    def _land_file(self, suffix: str, content: bytes) -> Iterable[str]:
        """Land a file; a landing that is refused leaves nothing."""
        if not self.made:
            self.do_create("")
        path = self.folder / f"{next(self.numbers)}.{suffix}"
        path.write_bytes(content)
        home, metadata = on_disk(self.loaded().location()), self.loaded().metadata_location
        before = files_under(home)
        try:
            self.table.land(path)
        except FirnError:
            assert (files_under(home), self.loaded().metadata_location) == (before, metadata), "it left something"
            raise
        return ()

    def _firn(self, *arguments: str) -> str:
        """The output of a command that has to succeed."""
        ran = command(*arguments, lake=self.opened.lake)
        assert ran.code == 0, (arguments, ran)
        return ran.out

    def _command(self, words: Sequence[str], variables: Mapping[str, str]) -> list[str]:
        """What a command prints, as in ``_told``."""
        return self._told(*command(*words, lake=self.opened.lake, variables=variables))

    def _told(self, code: int, out: str, err: str) -> list[str]:
        """The lines, two blanks between the cells of tables, and the exit code unless it is 0, or 1 after a refusal."""
        lines = [line.rstrip() for line in (*out.splitlines(), *err.splitlines())]
        for pattern, name in _COMMAND_MASKS:
            lines = [pattern.sub(name, line) for line in lines]
        last = lines[-1] if lines else ""
        refused = last.startswith("firn: ") and not last.startswith(f"firn: {self.name}: ")
        return [*lines, *([f"exit code {code}"] if code != int(refused) else [])]

    def _quiet(self, words: Sequence[str]) -> list[str]:
        """What a command prints unless it succeeds."""
        ran = command(*words, lake=self.opened.lake)
        return self._told(*ran) if ran.code else []

    def _log_batch(self, word: str) -> bytes:
        who, _, what = word.rpartition(">")
        producer, _, epoch = who.partition(".")
        identity = (int(producer), int(epoch or 0)) if producer else None
        end, _, offset = what.partition("@")
        if identity and end in ("commit", "abort"):
            (record,) = self.history.records("marker=" + (offset and f"@{offset}"))
            return marker(record.offset, identity, commit=end == "commit")
        (record,) = self.history.records(what)
        entry = Entry(record.offset, record.key, record.value)
        return batch(entry, producer=identity, transactional=True) if identity else batch(entry)

    def landing_file(self, records: Sequence[Record]) -> Path:
        path = self.folder / f"{next(self.numbers)}.parquet"
        pq.write_table(rows_of(records), path)
        return path


def _summed(found: Iterable[tuple[str, int, str]]) -> list[str]:
    """The numbers of files, by kind and reason."""
    sums = Counter[tuple[str, str]]()
    for kind, number, reason in found:
        sums[kind, reason] += number
    return [f"{kind}: {number} files, {reason}" for (kind, reason), number in sums.items()]


def _outcome(done: LaneRun, *, alone: bool) -> Iterator[str]:
    lane = "" if alone else f"{done.lane} "
    partitions = {plan.id: str(plan.topic_partition) for plan in done.plans}
    for publication in done.publications:
        if counts := publication.counts:
            went = ", ".join(f"{name} {number}" for name in _COUNTED if (number := getattr(counts, name)))
            files = f"{counts.segments_in} to {counts.segments_out} segments"
            where = "" if partitions[publication.plan_id] == "orders-0" else f"{partitions[publication.plan_id]}: "
            yield f"{lane}{where}{files}, {counts.records_in} to {counts.records_out} records" + (went and f"; {went}")
    for title, error in done.failures.items():
        yield f"{lane}failed: {title}: {error}"
    yield from (f"{lane}later: {one}" for one in done.postponed)


def _until(moment: int | None, now: int) -> str:
    return "" if moment is None else f" (in {(moment - now) / DAY:g} d)"
