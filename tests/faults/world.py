"""A table that a step of Firn is about to change, and what must hold of it afterwards, read without Firn."""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import firnlake
from firnlake.door import MaintainedTable
from firnlake.errors import FirnError
from infra.environment import variable
from tests.nightly.trials.files import Files
from tests.nightly.trials.files import Row as FileRow
from tests.nightly.trials.store import on_disk
from tests.support.commands import Ran, command
from tests.support.faults import Gate, Killed, properties_of
from tests.support.records import rows_of
from tests.support.topics import Record, foreign_rows

TABLE: Final = "db.t"
DAY: Final = 86_400_000
NOW: Final = int(time.time() * 1000)
"""What `firn` takes for the time, about."""
PROPERTIES: Final = {
    "firn.merge.segments": "2",
    "firn.clean.segments": "2",
    "firn.cleanup.policy": "compact,delete",
    "firn.retention.ms": str(30 * DAY),
    "firn.delete.retention.ms": "0",
    "firn.erase.history": "expire",
    "firn.maintenance": "manifests,snapshots,orphans",
    "commit.retry.min-wait-ms": "1",
    "commit.retry.max-wait-ms": "2",
}
Row = tuple[int, int, bytes | None, bytes | None]
"""Partition, offset, key and value."""


class Seen(NamedTuple):
    """What readers of main and of Firn's side branches see, in order; a record that is there twice is listed twice."""

    main: list[Row]
    quarantine: list[Row]
    removed_tombstones: list[Row]


class _Files(Files):
    """Reads also a table of which a store has lost files: these hold nothing."""

    def __init__(self, lost: Sequence[str]) -> None:
        super().__init__()
        self._lost = {on_disk(path) for path in lost}

    def held(self, path: str) -> list[FileRow]:
        return [] if path in self._lost else super().held(path)


@dataclass
class World:
    """A lake in ``folder``, which can be kept and put back; Firn works on it as one process after the other."""

    folder: Path
    names: dict[str, list[str]] = field(default_factory=dict)
    """What the preparation of a step has learned: its plan files, its stage, its file."""
    _copies: Path = field(init=False)

    def __post_init__(self) -> None:
        self._copies = self.folder.with_name("copies")

    # The lake and its copies. Metadata hold absolute paths, so a copy is always put back to the same place.

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "home" / "warehouse").mkdir(parents=True)

    def keep(self, name: str) -> None:
        shutil.copytree(self.folder, self._copies / name)

    def put_back(self, name: str) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(self._copies / name, self.folder)

    def properties(self, gate: Gate | None = None) -> dict[str, str]:
        """Those of the catalog to a process whose calls ask ``gate``."""
        home = self.folder / "home"
        place = {"uri": f"sqlite:///{home}/catalog.db", "warehouse": f"file://{home}/warehouse"}
        return place | properties_of(gate or Gate(), store=True)

    def table(self) -> Table:
        """The table as another writer loads it."""
        own = self.properties()
        return SqlCatalog("lake", uri=own["uri"], warehouse=own["warehouse"]).load_table(TABLE)

    # Firn.

    def open(self, gate: Gate | None = None, later_ms: int = 0) -> MaintainedTable:
        """The table through `firnlake.open`, by a clock that is ``later_ms`` ahead."""
        now, home = int(time.time() * 1000) + later_ms, self.folder / "home"
        return firnlake.open("lake", now=lambda: now, home=home, properties=self.properties(gate)).table(TABLE)

    @property
    def lake(self) -> Any:
        """What helpers that start processes take for a catalog."""
        return self.open().opened.lake

    def firn(self, *arguments: object, gate: Gate | None = None) -> Ran:
        """The command in this process; one that was killed has the code -9 and has said nothing."""
        told = {variable("lake", name): value for name, value in self.properties(gate).items()}
        told |= {"FIRN_HOME": str(self.folder / "home"), "FIRN_ENGINE": "local"}
        try:
            return command(*arguments, variables=told)
        except Killed:
            return Ran(-9, "", "")

    def by_door(self, call: Callable[[], Sequence[Any]]) -> Ran:
        """A call of the door that returns findings; what has failed is told as the command would."""
        try:
            failed = [one for one in call() if one.exit_code]
            return Ran(failed[0].exit_code if failed else 0, "", f"firn: {failed[0]}\n" if failed else "")
        except FirnError as error:
            return Ran(error.exit_code, "", f"firn: {error}\n")
        except Killed:
            return Ran(-9, "", "")

    def done(self, *arguments: object) -> Ran:
        """The command, which must succeed."""
        ran = self.firn(*arguments)
        assert ran.code == 0, ran
        return ran

    def write(self, records: Sequence[Record]) -> str:
        """A file of ``records`` to land."""
        path = self.folder / f"landing-{records[0].offset}.parquet"
        pq.write_table(rows_of(records), path)
        return str(path)

    def land(self, records: Sequence[Record]) -> None:
        self.done("land", TABLE, self.write(records))

    def append(self, *records: Record) -> None:
        """Another writer appends ``records``."""
        self.table().append(foreign_rows(rows_of(records)))

    # What must hold.

    def seen(self) -> Seen:
        files, metadata = _Files(self.names.get("lost", [])), self._metadata()
        refs = {name: ref["snapshot-id"] for name, ref in metadata.get("refs", {}).items()}

        def on(branch: str) -> list[Row]:
            rows = (row.record for row in files.rows(metadata, refs.get(branch)))
            return sorted((one.partition, one.offset, one.key, one.value) for one in rows)

        return Seen(on("main"), on("firn_quarantine"), on("firn_tombstones"))

    def lost(self) -> list[str]:
        """Files that a snapshot needs and that are gone."""
        reached = Files().reach(self.table().metadata_location).lengths
        known = {on_disk(path) for path in self.names.get("lost", [])}
        return [path for path in reached if path not in known and not Path(path).exists()]

    def published_twice(self) -> list[str]:
        """Jobs that several snapshots of main say they are."""
        table, jobs = self.table(), Counter[str]()
        at = table.current_snapshot()
        while at is not None:
            own: Mapping[str, Any] = at.summary.additional_properties if at.summary else {}
            if job := own.get("firn.job-id") or own.get("firn.plan-id"):
                jobs[job] += 1
            at = table.snapshot_by_id(at.parent_snapshot_id or 0)
        return [job for job, times in jobs.items() if times > 1]

    def left(self) -> list[str]:
        """Files below the table's location that its metadata do not reach, but for those of erasures, which stay."""
        table = self.table()
        reached = set(Files().reach(table.metadata_location).lengths)
        reached |= {on_disk(one.metadata_file) for one in table.metadata.metadata_log}
        below = (path for path in Path(on_disk(table.location())).rglob("*") if path.is_file())
        return sorted(str(path) for path in below if str(path) not in reached and path.parent.name != "erasures")

    def _metadata(self) -> dict[str, Any]:
        return Files().document(self.table().metadata_location)
