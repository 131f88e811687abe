"""A table that a step of Firn is about to change, and what must hold of it afterwards, read without Firn."""

import os
import shutil
import time
import uuid
from collections.abc import Callable, Sequence
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
from infra.foreign.files import files_under
from tests.nightly.trials import files
from tests.nightly.trials.files import Files, on_disk
from tests.support.commands import Ran, command
from tests.support.faults import Gate, Killed, properties_of
from tests.support.records import DAY, Record, rows_of
from tests.support.topics import foreign_rows

TABLE: Final = "db.t"
LATER: Final = 10 * DAY
"""By a clock so far ahead, all that lies there is old."""
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

    def held(self, path: str) -> list[files.Row]:
        return [] if path in self._lost else super().held(path)


@dataclass
class World:
    """A lake in ``folder``, which can be kept and put back; Firn works on it as one process after the other."""

    folder: Path
    names: dict[str, list[str]] = field(default_factory=dict)
    """What the preparation of a step has learned: its stages, its file."""

    # The lake and its copy. Metadata hold absolute paths, so a copy is always put back to the same place.

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "home" / "warehouse").mkdir(parents=True)

    def keep(self) -> None:
        shutil.copytree(self.folder, self.folder.with_name("kept"))

    def put_back(self) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(self.folder.with_name("kept"), self.folder)

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
        """The table through `firnlake.open`, ``later_ms`` after now: by the clock, and by the ages of all files."""
        for path in files_under(self.folder) if later_ms else ():
            moment = path.stat().st_mtime_ns - later_ms * 1_000_000
            os.utime(path, ns=(moment, moment))
        now, home = int(time.time() * 1000) + later_ms, self.folder / "home"
        return firnlake.open("lake", now=lambda: now, home=home, properties=self.properties(gate)).table(TABLE)

    @property
    def lake(self) -> Any:
        """What helpers that start processes take for a catalog."""
        return self.open().opened.lake

    def firn(self, *arguments: object, gate: Gate | None = None) -> Ran:
        """The command in this process, on a worker that shares no folder with those before it; one that was killed has
        the code -9 and has said nothing."""
        told = {variable("lake", name): value for name, value in self.properties(gate).items()}
        told |= {"FIRN_HOME": str(self.folder / "workers" / uuid.uuid4().hex), "FIRN_ENGINE": "local"}
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

    def planned(self, lane: str) -> list[str]:
        """The stages of the work of ``lane``, due or not."""
        return self.done("open", TABLE, "--lane", lane, "--force").out.splitlines()

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
        found, metadata = _Files(self.names.get("lost", [])), self._metadata()

        def on(branch: str) -> list[Row]:
            rows = (row.record for row in found.on(metadata, branch))
            return sorted((one.partition, one.offset, one.key, one.value) for one in rows)

        return Seen(on("main"), on("firn_quarantine"), on("firn_tombstones"))

    def lost(self) -> list[str]:
        """Files that a snapshot needs and that are gone."""
        known = {on_disk(path) for path in self.names.get("lost", [])}
        return [path for path in Files().gone(self.table().metadata_location) if path not in known]

    def published_twice(self) -> list[str]:
        """Jobs that several snapshots of main say they are."""
        return files.jobs_twice(files.line_of(self._metadata()))

    def left(self, *, lost_commits: bool = False) -> list[str]:
        """Files that nothing reaches. What the metadata of ``lost_commits`` reach stays, as another catalog's does, and
        so do the lists of the expiries that removed it (R4)."""
        known = Files()
        left = known.unreached(self.table().metadata_location)
        staying: set[str] = set()
        for path in left if lost_commits else ():
            if path.endswith(".metadata.json"):
                staying |= {path, *known.reach(path)}
        return [path for path in left if path not in staying and not (staying and Path(path).parent.name == "expired")]

    def _metadata(self) -> dict[str, Any]:
        return Files().document(self.table().metadata_location)
