"""A table under test, driven by lines of text as a user drives one: land records, run lanes, ask what readers see.

    create delete.retention.ms=0     a table with Kafka's columns, and thresholds of 2 unless a property says otherwise
    land a=1 b=1 | a= -=x            commits of `firn land`, parted by |; see `records` for how records are written
    full!                            run a lane, `!` with force; says what became of the records
    at 1d                            the clock: a day after NOW
    read                             what readers see: a=@2+1d is a tombstone at offset 2 with its delete horizon
    firn status {table} --check      the command itself: what it prints, and its exit code unless that is 0

A command is a lane, `run`, or a method ``do_…`` of Scenario. It answers with lines, in which what changes from run to
run is masked.
Firn itself is used through `firnlake.open` and the command alone; other writers are PyIceberg's.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import re
import shlex
import sys
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table.refs import MAIN_BRANCH

import firnlake
from firnlake import clock
from firnlake.errors import FirnError
from firnlake.iceberg.row_deletes import partition_values
from infra.environment import environment
from infra.foreign.files import files_under, on_disk
from infra.foreign.row_deletes import add, equality_file, position_file
from tests.support import foreign, row_deletes
from tests.support.log_segments import Entry, batch, marker, segment
from tests.support.records import DAY, LOW_THRESHOLDS, NOW, TOPIC, History, Record, rows_of, shown, span
from tests.support.upserting import adopt_upserted, delete_equal, delete_everywhere

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyiceberg.table import Table

    from firnlake.door import OpenCatalog
    from firnlake.run import LaneRun

LANES: Final = ("retain", "erase", "convert", "merge", "clean", "tier", "full")
BRANCHES: Final = {"quarantined": "firn_quarantine", "removed": "firn_tombstones", "mended": "firn_mended"}
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
_MASKS: Final = (
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "<id>"),
    (re.compile(r"( at | from )20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"), r"\1<time>"),
    (re.compile(r"\b[0-9a-f]{16}\b"), "<id>"),
    (re.compile(r"\b[1-9][0-9]{16,18}\b"), "<snapshot>"),
    # Failures tell the machine's clock.
    (re.compile(r"(?<= failed in )(\w+) at [0-9T:Z-]+"), r"\1 at <time>"),
    (re.compile(r"(?<=segments change, from )[0-9T:Z-]+"), "<time>"),
)
_numbers = itertools.count()


class Scenario:
    """One table ``db.case<n>`` of ``lake`` with its topic `orders`, and the clock that commands move."""

    def __init__(self, opened: OpenCatalog, folder: Path) -> None:
        self.now = NOW
        self.opened = firnlake.door.OpenCatalog(opened.lake, lambda: self.now, opened.engine)
        self.name = f"db.case{next(_numbers)}"
        self.table = self.opened.table(self.name)
        self.folder = folder
        self.history = History()
        self._made = False
        self._staged: list[str] = []
        self._stages: list[list[str]] = []
        self._planned = folder
        self._clearing: list[str] = []
        self._named: list[str] = []
        self._strays: dict[str, Path] = {}
        self._files = itertools.count()

    def answer(self, line: str) -> list[str]:
        """Do what ``line`` says, and return what there is to see, masked; a refusal is an answer as well."""
        name, _, rest = line.partition(" ")
        lane, force = name.removesuffix("!"), name.endswith("!")
        try:
            if lane in (*LANES, "run"):
                said = self._run(() if lane == "run" else (lane,), force, rest.split())
            else:
                said = list(getattr(self, f"do_{name}")(rest))
        except FirnError as error:
            said = [f"{type(error).__name__.removesuffix('Error').lower()}: {error}"]
        return [self._masked(one) for one in said]

    # What writers do.

    def do_create(self, rest: str) -> Iterable[str]:
        words = rest.split()
        chosen = {f"firn.{name}": value for name, value in _pairs(words)}
        self.table.create(LOW_THRESHOLDS | chosen, transactions="transactions" in words)
        self._made = True
        return ()

    def do_land(self, rest: str) -> Iterable[str]:
        for records in self._batches(rest):
            self.table.land(self._file(records))
        return ()

    def do_append(self, rest: str) -> Iterable[str]:
        """Append as a writer does that knows nothing of Firn."""
        for records in self._batches(rest):
            self.loaded().append(self._foreign(records))
        return ()

    def do_log(self, rest: str) -> Iterable[str]:
        """Land log segments as Kafka's brokers write them.

        ``1>a=1`` is in a transaction of producer 1, ``1.2>a=1`` of its epoch 2; ``1>commit`` or ``1>abort`` ends it,
        ``1>commit@5`` at offset 5.
        """
        if not self._made:
            self.do_create("transactions")
        for text in rest.split("|"):
            batches = [self._log_batch(word) for word in text.split()]
            path = segment(self.folder / f"{next(self._files)}" / "orders-0", *batches)
            self.table.land(path)
        return ()

    def do_delete(self, rest: str) -> Iterable[str]:
        """Hide the records with these offsets by position deletes, as merge-on-read does."""
        lake = self.opened.lake
        row_deletes.delete_at(
            lake, self.name, row_deletes.places(lake, self.name, {int(word) for word in rest.split()})
        )
        return ()

    def do_delete_keys(self, rest: str) -> Iterable[str]:
        """Hide the records of these keys by an equality delete in each partition, as Flink's upserts do."""
        table = self.loaded()
        rows = [(word.encode(),) for word in rest.split()]
        parts = {(file.spec_id, partition_values(file)) for file in row_deletes.data_files(table)}
        files = [equality_file(table, ["key"], rows, spec_id, values) for spec_id, values in sorted(parts, key=str)]
        add(self.opened.lake, self.name, files)
        return ()

    def do_overwrite(self, rest: str) -> Iterable[str]:
        """Load records in place of everything, as another writer's INSERT OVERWRITE does."""
        (records,) = self._batches(rest)
        self.loaded().overwrite(self._foreign(records))
        return ()

    def do_rollback(self, rest: str) -> Iterable[str]:
        """Make an older snapshot main's newest again, as an operator does: ``rollback 2`` goes two back."""
        table = self.loaded()
        snapshot = table.current_snapshot()
        for _ in range(int(rest or 1)):
            assert snapshot is not None
            assert snapshot.parent_snapshot_id is not None
            snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id)
        assert snapshot is not None
        table.manage_snapshots().rollback_to_snapshot(snapshot.snapshot_id).commit()
        return ()

    def do_set(self, rest: str) -> Iterable[str]:
        with self.loaded().transaction() as change:
            change.set_properties({f"firn.{name}": value for name, value in _pairs(rest.split())})
        return ()

    def do_at(self, rest: str) -> Iterable[str]:
        self.now = NOW + span(rest)
        return ()

    def do_later(self, rest: str) -> Iterable[str]:
        """The clock: so long after the machine's, by which files and snapshots have their age."""
        self.now = clock.now_ms() + span(rest)
        return ()

    def do_alone(self, _: str) -> Iterable[str]:
        """From here on, the table is in a lake of its own, for commands that look at all tables."""
        lake = type(self.opened.lake).embedded(self.folder / "home")
        self.opened = firnlake.door.OpenCatalog(lake, lambda: self.now, self.opened.engine)
        self.name = "db.orders"
        self.table = self.opened.table(self.name)
        return ()

    def do_upserted(self, rest: str) -> Iterable[str]:
        """A table that another writer upserts into, adopted; with `unpartitioned`, without any partition field."""
        words = rest.split()
        chosen = {f"firn.{name}": value for name, value in _pairs(words)}
        adopt_upserted(self.table, LOW_THRESHOLDS | chosen, partitioned="unpartitioned" not in words)
        self._made = True
        return ()

    def do_delete_equal(self, rest: str) -> Iterable[str]:
        """Hide records by an equality delete of columns: ``key,value a,1 b,-``, `-` for NULL; ``1/key a`` in partition
        1 alone, ``*/key a`` by one that reaches all partitions."""
        names, *rows = rest.split()
        where, _, columns = names.rpartition("/")
        values = [row.split(",") for row in rows]
        if where == "*":
            delete_everywhere(self.opened.lake, self.name, columns.split(","), values)
        else:
            partition = int(where) if where else None
            delete_equal(self.opened.lake, self.name, columns.split(","), values, partition)
        return ()

    def do_delete_rows(self, rest: str) -> Iterable[str]:
        """Hide records of a file that ``files`` has shown by their places, ``delete_rows 0 1 1000``; the delete file
        names one that is not there as well."""
        number, *places = map(int, rest.split())
        table, path = self.loaded(), self._named[number]
        file = next(one for one in row_deletes.data_files(table) if one.file_path == path)
        rows = [(file.file_path, place) for place in places] + [("file:///gone.parquet", 0)]
        delete = position_file(table, rows, file.spec_id, partition_values(file), bounds=False)
        add(self.opened.lake, self.name, [delete])
        return ()

    def do_drop(self, rest: str) -> Iterable[str]:
        """Delete rows as PyIceberg does, which rewrites their files: ``drop offset = 1``."""
        self.loaded().delete(rest)
        return ()

    def do_ref(self, rest: str) -> Iterable[str]:
        """Name main's newest snapshot: ``ref tag audit``; with a longest age, ``ref branch audit 1d``."""
        kind, name, *age = rest.split()
        manage, snapshot_id = self.loaded().manage_snapshots(), self.loaded().metadata.current_snapshot_id
        assert snapshot_id is not None
        make = manage.create_tag if kind == "tag" else manage.create_branch
        make(snapshot_id, name, max_ref_age_ms=span(age[0]) if age else None).commit()
        return ()

    def do_unref(self, rest: str) -> Iterable[str]:
        """Drop a branch."""
        self.loaded().manage_snapshots().remove_branch(rest).commit()
        return ()

    def do_property(self, rest: str) -> Iterable[str]:
        """Set properties by their whole names, as any client may; ``name=`` removes one."""
        with self.loaded().transaction() as change:
            change.set_properties({name: value for name, value in _pairs(rest.split()) if value})
            change.remove_properties(*(name for name, value in _pairs(rest.split()) if not value))
        return ()

    def do_tear(self, rest: str) -> Iterable[str]:
        """Cut the end of a file off that ``files`` has shown, as a writer does that died."""
        path = on_disk(self._named[int(rest)])
        path.write_bytes(path.read_bytes()[:-200])
        return ()

    def do_lose(self, rest: str) -> Iterable[str]:
        """Delete a file that ``files`` has shown, as a rule of the store does."""
        on_disk(self._named[int(rest)]).unlink()
        return ()

    def do_relist(self, rest: str) -> Iterable[str]:
        """List a file once more that ``files`` has shown, as a sink does that repeats a commit."""
        path = self._named[int(rest)]
        files = [file for file in row_deletes.data_files(self.loaded()) if file.file_path == path]
        add(self.opened.lake, self.name, [], files)
        return ()

    def do_stray(self, rest: str) -> Iterable[str]:
        """Put files below the table's location that nothing refers to; ``{uuid}`` is the table's."""
        for word in rest.split():
            path = on_disk(self.loaded().location()) / word.replace("{uuid}", str(self.loaded().metadata.table_uuid))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"PAR1")
            self._strays[word] = path
        return ()

    def do_claim(self, rest: str) -> Iterable[str]:
        """Append as a writer does that claims what is Firn's: ``claim 2 a=1`` level 2, ``claim 0+1d a=`` a horizon."""
        claimed, _, records = rest.partition(" ")
        level, _, horizon = claimed.partition("+")
        moment = (NOW + span(horizon)) * 1000 if horizon else None
        for claiming in self._batches(records):
            self.loaded().append(self._foreign(claiming, int(level), moment))
        return ()

    def do_lose_offsets(self, rest: str) -> Iterable[str]:
        """Delete the data files of main that begin with these offsets from the store, as an accident does."""
        wanted = {int(word) for word in rest.split()}
        for file in self.loaded().inspect.data_files().to_pylist():
            if _low(file["readable_metrics"], "offset") in wanted:
                on_disk(file["file_path"]).unlink()
        return ()

    def do_append_empty(self, _: str) -> Iterable[str]:
        """Append a data file without a record, as some writers do."""
        foreign.append_empty_file(self.opened.lake, self.name)
        return ()

    def do_rewrite_manifests(self, _: str) -> Iterable[str]:
        """List the same files in one new manifest, as other engines do."""
        foreign.rewrite_manifests(self.opened.lake, self.name)
        return ()

    # What Firn does.

    def _run(self, lanes: Sequence[str], force: bool, words: Sequence[str]) -> list[str]:
        done = self.table.run(*lanes, force=force, until_idle="until-idle" in words)
        said = [line for lane in done for line in _outcome(lane, alone=bool(lanes))]
        return said or ["nothing due"]

    def do_stage(self, rest: str) -> Iterable[str]:
        """Plan, compact and validate a lane, and publish nothing yet: what another command does now comes between."""
        if rest:
            self.do_plans(rest)
        files = sorted(map(str, self._planned.glob("*.json")))
        if not files:
            return ["nothing due"]
        compacted = json.loads(self._firn("compact", *files, "--json"))
        self._staged = list(dict.fromkeys(one["stage"] for one in compacted))
        self._stages.append(self._staged)
        self._firn("validate", *self._staged)
        return ()

    def do_publish(self, rest: str) -> Iterable[str]:
        """Publish what ``stage`` has left, or left earlier: ``publish 0`` is the first; what is refused is told."""
        staged = self._stages[int(rest)] if rest else self._staged
        code, out, err = command(self.opened.lake, ["publish", *staged])
        return [] if code == 0 else [*out.splitlines(), *err.splitlines(), f"exit code {code}"]

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
        yield from (f"blocked: {blocker.text}" for blocker in explained.blockers)

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
        for one in self.table.explain_segment(rest):
            yield from (f"{going.lane} takes it: {going.reason}" for going in one.going)
            yield from (f"waits, {reason.rule}: {reason.text}" for reason in one.waiting)
            yield from ([f"removed by {one.removed_by.lane}"] if one.removed_by else [])

    def do_verify(self, _: str) -> Iterable[str]:
        """The promises that the newest commit broke, or that it kept all."""
        for one in self.table.verify():
            yield f"{one.claim.lane}: " + ("kept" if one.passed else "broken")
            yield from (f"{row.promise.number} {row.promise.name}: {row.observed}" for row in one.rows if row.broken)

    def do_maintain(self, rest: str) -> Iterable[str]:
        """What went, by kind, with the number of files."""
        found = self.table.maintain(dry_run=rest == "--dry-run")
        return [f"{one.kind}: {one.files} files, {one.reason}" for one in found if one.goes] or ["nothing to remove"]

    def do_firn(self, rest: str) -> Iterable[str]:
        """The command in this process, ``{table}`` and ``{folder}`` filled in, at the clock where it takes one."""
        text = re.sub(r"\{file (\d+)\}", lambda found: self._named[int(found[1])], rest)
        text = text.replace("{table}", self.name).replace("{folder}", str(self.folder)).replace("{now}", str(self.now))
        code, out, err = command(self.opened.lake, shlex.split(text))
        return [*out.splitlines(), *err.splitlines(), *([f"exit code {code}"] if code else [])]

    def do_plans(self, rest: str) -> Iterable[str]:
        """Plan a lane into files, from which ``stage`` without a lane goes on."""
        lane, force = rest.removesuffix("!"), ["--force"] if rest.endswith("!") else []
        self._planned = self.folder / f"plans-{next(self._files)}"
        asked = [self.name, "--lane", lane, "--now", str(self.now), "--write", str(self._planned), *force]
        self._firn("plan", *asked)
        return ()

    def do_maintained(self, rest: str) -> Iterable[str]:
        """As ``maintain``, with what stays, and its reasons."""
        for one in self.table.maintain(dry_run=rest == "--dry-run"):
            refused = f", exit code {one.exit_code}" if one.exit_code else ""
            yield f"{one.kind} {'goes' if one.goes else 'stays'}: {one.files} files, {one.reason}{refused}"

    def do_export(self, rest: str) -> Iterable[str]:
        """Export the quarantine to a new file of the folder, ``export lost.jsonl --partition orders-1``."""
        name, *options = rest.split()
        asked = ["quarantine", self.name, "--export", str(self.folder / name), *options]
        code, out, err = command(self.opened.lake, asked)
        self._clearing = shlex.split(out.partition("firn ")[2])
        return [*out.splitlines(), *err.splitlines(), *([f"exit code {code}"] if code else [])]

    def do_clear(self, _: str) -> Iterable[str]:
        """Clear what the last export held, by the command that it printed."""
        return self._firn(*self._clearing, "--yes").splitlines()

    def do_mend(self, rest: str) -> Iterable[str]:
        """Take files from main that ``files`` has shown, as a person who says yes; only what is refused is told."""
        named = [word for number in rest.split() for word in ("--file", self._named[int(number)])]
        code, _, err = command(self.opened.lake, ["mend", self.name, *named, "--yes"])
        return [] if code == 0 else [*err.splitlines(), f"exit code {code}"]

    # What readers see.

    def do_read(self, rest: str) -> Iterable[str]:
        """The visible records of main, or of a branch (BRANCHES), in the order of partitions and offsets."""
        return [" ".join(shown(row) for row in self.rows(BRANCHES.get(rest, MAIN_BRANCH))) or "no record"]

    def do_levels(self, _: str) -> Iterable[str]:
        """The data files of main, as level and offsets, from their metrics."""
        files = (row["readable_metrics"] for row in self.loaded().inspect.data_files().to_pylist())
        found = ((_low(one, "partition"), _low(one, "offset"), _segment(one)) for one in files)
        return [" ".join(f"{where}/{text}" if where else text for where, _, text in sorted(found)) or "no segment"]

    def do_properties(self, rest: str) -> Iterable[str]:
        """Some of the properties in the summary of main's newest snapshot."""
        snapshot = self.loaded().current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        return [f"{name}={snapshot.summary[f'firn.{name}'] or '-'}" for name in rest.split()]

    def do_files(self, _: str) -> Iterable[str]:
        """The data files of main, by partition and offset. From here on {file 0} is the first of them."""
        found = [(row["readable_metrics"], row["file_path"]) for row in self.loaded().inspect.data_files().to_pylist()]
        known = sorted(found, key=lambda one: (_low(one[0], "partition"), _low(one[0], "offset")))
        self._named += [path for _, path in known if path not in self._named]
        return [f"{{file {self._named.index(path)}}} {_segment(metrics)}" for metrics, path in known] or ["no file"]

    def do_deletes(self, _: str) -> Iterable[str]:
        """The live delete files of main."""
        files, equality = row_deletes.delete_files(self.loaded()), row_deletes.equality_deletes(self.loaded())
        return [f"position {len(files) - len(equality)}, equality {len(equality)}"]

    def do_disk(self, _: str) -> Iterable[str]:
        """How many data files lie on the disk: those of main, and others."""
        live = {on_disk(file.file_path) for file in row_deletes.data_files(self.loaded())}
        found = {path for path in files_under(on_disk(self.loaded().location())) if path.suffix == ".parquet"}
        return [f"of main {len(found & live)}, others {len(found - live - set(self._strays.values()))}"]

    def do_strays(self, _: str) -> Iterable[str]:
        """Which files that nothing refers to are still there."""
        return [" ".join(word for word, path in self._strays.items() if path.exists()) or "none"]

    def do_history(self, _: str) -> Iterable[str]:
        """How many snapshots the table has, its branches and tags."""
        metadata = self.loaded().metadata
        return [f"{len(metadata.snapshots)} snapshots, {' '.join(sorted(metadata.refs))}"]

    def do_columns(self, rest: str) -> Iterable[str]:
        """These columns of each visible record of main."""
        for row in self.rows():
            yield f"@{row['offset']} " + " ".join(f"{name}={row[name]}" for name in rest.split())

    def rows(self, branch: str = MAIN_BRANCH) -> list[dict[str, Any]]:
        """Every visible row, as PyIceberg reads it, or as the specification says where PyIceberg can't."""
        table = self.loaded()
        ref = table.metadata.refs.get(branch)
        if ref is None:
            return []
        if branch == MAIN_BRANCH and row_deletes.equality_deletes(table):
            found = row_deletes.visible_rows(table)
        else:
            found = table.scan(snapshot_id=ref.snapshot_id).to_arrow().to_pylist()
        return sorted(found, key=lambda row: (row["partition"], row["offset"]))

    def loaded(self) -> Table:
        """The table as PyIceberg loads it now."""
        return self.opened.lake.catalog.load_table(self.name)

    def _firn(self, *arguments: str) -> str:
        """The output of a command that has to succeed."""
        code, out, err = command(self.opened.lake, arguments)
        assert code == 0, (arguments, out, err)
        return out

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

    def _batches(self, rest: str) -> list[list[Record]]:
        if not self._made:
            self.do_create("")
        return [self.history.records(batch) for batch in rest.split("|")]

    def _foreign(self, records: Sequence[Record], level: int | None = None, horizon_us: int | None = None) -> pa.Table:
        """Rows as a writer writes them that knows nothing of Firn's columns, which are NULL, or claims them."""
        rows, schema = rows_of(records), self.loaded().schema().as_arrow()
        for name, value in (("level", level), ("delete_horizon", horizon_us)):
            field = schema.field(name)
            rows = rows.append_column(field, pa.array([value] * len(rows), field.type))
        return rows

    def _file(self, batch: Sequence[Record]) -> Path:
        path = self.folder / f"{next(self._files)}.parquet"
        pq.write_table(rows_of(batch), path)
        return path

    def _masked(self, text: str) -> str:
        for at, path in enumerate(self._named):
            text = text.replace(path, f"{{file {at}}}").replace(path.rpartition("/")[2], f"{{name {at}}}")
        text = text.replace(self.name, "{table}").replace(self.name.replace(".", "/"), "{table}")
        text = text.replace(str(self.folder), "{folder}")
        text = text.replace(str(self.opened.lake.home), "{home}")
        text = text.replace(f"/{self.name.replace('.', '/')}/", "/{table}/")
        topic = self.name.partition(".")[2]
        if topic != TOPIC:
            text = re.sub(rf"\b{topic}-(?=\d)", "{topic}-", text)
        for pattern, name in _MASKS:
            text = pattern.sub(name, text)
        return text.rstrip()


def command(lake: Any, arguments: Sequence[str]) -> tuple[int, str, str]:
    """Run `firn` in this process on ``lake``: its exit code, standard output and standard error."""
    from firnlake.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, environment(lake)),
        patch.object(sys, "argv", ["firn", *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as left:
            return int(left.code or 0), out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


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


def _segment(metrics: Mapping[str, Any]) -> str:
    return f"L{_low(metrics, 'level')}[{_low(metrics, 'offset')}-{_high(metrics, 'offset')}]"


def _low(metrics: Mapping[str, Any], column: str) -> int:
    return int(metrics[column]["lower_bound"] or 0)


def _high(metrics: Mapping[str, Any], column: str) -> int:
    return int(metrics[column]["upper_bound"] or 0)


def _until(moment: int | None, now: int) -> str:
    return "" if moment is None else f" (in {(moment - now) / DAY:g} d)"


def _pairs(words: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, value) for word in words for name, equals, value in [word.partition("=")] if equals]
