"""A table in the hands of many: what each of them does to it, and what each snapshot must show from then on."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow.parquet as pq
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from firnlake import clock
from firnlake.errors import FirnError
from firnlake.iceberg.branches import SIDE_BRANCHES
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import job_folder
from firnlake.job.lane import Lane
from firnlake.job.stage import stages_of
from firnlake.plan.make import plan_table
from infra.foreign.files import files_under, on_disk
from tests.faults.harness.kept import Contents
from tests.support import foreign, lakes
from tests.support.lakes import NOW, Fates
from tests.support.publishing import publish

HOUR: Final = 3_600_000
DAY: Final = 24 * HOUR
PARTITIONS: Final = (0, 1, 2)
_TIMES: Final = ("timestamp-ms", "last-updated-ms")


@dataclass(frozen=True)
class Staged:
    """A result of Firn's that is not published yet."""

    name: str
    inputs: frozenset[str]
    files: frozenset[Path]
    """Its data files and documents."""
    before: Contents
    after: Contents
    age_ms: int = 0


@dataclass
class Hands:
    """Everybody who works on the table ``name``. Each method is one of them."""

    random: Random
    lake: Lake
    name: str
    contents: dict[int, Contents] = field(default_factory=dict)
    """Visible records of every snapshot, by id."""
    staged: list[Staged] = field(default_factory=list)
    strays: dict[Path, int] = field(default_factory=dict)
    """Files of killed writers, and their ages by now."""
    number: int = 0
    log: list[str] = field(default_factory=list)
    """Names of the actors, in the order in which they acted."""
    _last: Contents = frozenset()
    """Visible records of main when it was last looked at."""

    @property
    def table(self) -> Table:
        return self.lake.table(self.name)

    @property
    def main(self) -> Contents:
        return self._shows("main")

    def known(self) -> None:
        """Snapshots that nobody here took are Firn's, which show what main did."""
        for snapshot_id in self._ids():
            self.contents.setdefault(snapshot_id, self._last)
        self._last = self.main

    def act(self) -> None:
        """One of them, by chance."""
        self.known()
        who = self.random.choice(_ALL)
        self.log.append(who.__name__)
        who(self)

    def land(self, branch: str = "main") -> None:
        self.number += 2
        partition = self.random.choice(PARTITIONS)
        offsets = (self.number, self.number + 1)
        rows = [lakes.row(offset, partition=partition, headers=[]) for offset in offsets]
        shown = self._shows(branch) | {(partition, offset) for offset in offsets}
        self.table.append(lakes.stored(rows), branch=branch)
        self._took(shown)

    def catch_up(self) -> None:
        """Small appends one after the other, which the catalog gets at once."""
        shown = [self.main]
        with self.table.transaction() as transaction:
            for partition in 2 * PARTITIONS:
                self.number += 2  # each landing takes two offsets
                transaction.append(lakes.stored([lakes.row(self.number, partition=partition, headers=[])]))
                shown.append(shown[-1] | {(partition, self.number)})
        self._took(*shown[1:])

    def drop(self) -> None:
        partition = self.random.choice(PARTITIONS)
        left = frozenset(row for row in self.main if row[0] != partition)
        if left != self.main:
            self.table.delete(f"partition = {partition}")
            self._took(left)

    def rewrite(self) -> None:
        """The same records of a partition in new files, as ``rewrite_data_files`` leaves them, by two snapshots."""
        partition = self.random.choice(PARTITIONS)
        left = frozenset(row for row in self.main if row[0] != partition)
        if left != self.main:
            rows = self.table.scan(row_filter=f"partition = {partition}").to_arrow()
            shown = self.main
            self.table.overwrite(rows, f"partition = {partition}")
            self._took(left, shown)

    def rewrite_manifests(self) -> None:
        shown = self.main
        if shown and self._without_deletes():
            foreign.rewrite_manifests(self.lake, self.name)
            self._took(shown)

    def hide(self) -> None:
        """A position delete of the first record of a file."""
        if not self.main:
            return
        path = min(lakes.paths(self.table))
        first = pq.ParquetFile(on_disk(path)).read(columns=["partition", "offset"]).slice(0, 1).to_pylist()[0]
        shown = self.main - {(first["partition"], first["offset"])}
        foreign.delete_rows(self.lake, path, [0], self.name)
        self._took(shown)

    def tag(self) -> None:
        age = self.random.choice([None, None, 2 * DAY])
        manage = self.table.manage_snapshots()
        manage.create_tag(
            self._any().snapshot_id, f"tag-{len(self.contents)}-{self.number}", max_ref_age_ms=age
        ).commit()
        self.number += 1

    def branch(self) -> None:
        limits: dict[str, Any] = {
            "max_ref_age_ms": self.random.choice([None, 4 * DAY]),
            "max_snapshot_age_ms": self.random.choice([None, HOUR, 20 * DAY]),
            "min_snapshots_to_keep": self.random.choice([None, 1, 3]),
        }
        name, self.number = f"branch-{self.number}", self.number + 1
        self.table.manage_snapshots().create_branch(self._any().snapshot_id, name, **limits).commit()
        if self.random.random() < 0.7:
            self.land(name)

    def forget(self) -> None:
        """Removes a branch or a tag that another writer made."""
        found = [name for name in self.table.metadata.refs if name not in ("main", *SIDE_BRANCHES)]
        if found:
            name = self.random.choice(sorted(found))
            manage = self.table.manage_snapshots()
            (manage.remove_tag if name.startswith("tag") else manage.remove_branch)(name).commit()

    def roll_back(self) -> None:
        """Main is set back to what it was; what came after is reached by nothing."""
        before = self.table.current_snapshot()
        if before and before.parent_snapshot_id in self._ids():
            self.table.manage_snapshots().rollback_to_snapshot(before.parent_snapshot_id).commit()
            self._last = self.main

    def expire(self) -> None:
        """Another tool expires snapshots, and leaves the files to whoever collects orphans."""
        limit = datetime.fromtimestamp((clock.now_ms() - 2 * DAY) / 1000, UTC).replace(tzinfo=None)
        self.table.maintenance.expire_snapshots().older_than(limit).commit()

    def stray(self) -> None:
        """Writers that died, or are about to commit."""
        for folder, suffix in (("data", ".parquet"), ("data/part=7", ".parquet"), ("metadata", "-m0.avro")):
            self.number += 1
            path = on_disk(self.table.location()) / folder / f"stray-{self.number}{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"PAR1")
            self.strays[path] = 0

    def stage(self) -> None:
        """Firn cleans a partition, up to where it can be published."""
        for plan in plan_table(self.lake, self.name, Lane.FULL, NOW, force=True)[:1]:
            if plan.stage in stages_of(self.lake, self.name):
                continue
            rows = self.table.scan(row_filter=f"partition = {plan.partition}").to_arrow().to_pylist()
            kept = max(rows, key=lambda row: row["offset"])
            stage = lakes.ready(self.lake, plan, [kept | {"level": 3}], Fates(superseded=plan.records - 1))
            folders = (stage.documents.location, job_folder(stage.table, stage.job_id))
            files = frozenset(path for folder in folders for path in files_under(on_disk(folder)))
            before = frozenset((row["partition"], row["offset"]) for row in rows)
            after = frozenset({(kept["partition"], kept["offset"])})
            inputs = frozenset(one.path for one in plan.inputs)
            self.staged.append(Staged(stage.identifier, inputs, files, before, after))

    def publish(self) -> None:
        if self.staged:
            stage = self.staged.pop(0)
            shown = self.main - stage.before | stage.after
            try:
                publish(self.lake, stage.name)
            except FirnError:
                return
            self._took(shown)

    def wait(self, time_ms: int) -> None:
        """Time passes: whatever is there is older afterwards, by the table's metadata and by the store."""
        self.known()
        self.log.append(f"{time_ms // HOUR} hours")
        table = self.table
        for path in files_under(on_disk(table.location())):
            then = path.stat().st_mtime - time_ms / 1000
            os.utime(path, (then, then))
        path = on_disk(table.metadata_location)
        written = path.stat().st_mtime
        path.write_text(json.dumps(_older(json.loads(path.read_text()), time_ms)))
        os.utime(path, (written, written))
        self.strays = {path: age + time_ms for path, age in self.strays.items()}
        self.staged = [replace(one, age_ms=one.age_ms + time_ms) for one in self.staged]

    def _took(self, *shown: Contents) -> None:
        """The new snapshots, in their order, show this; further ones the last of it."""
        new = [one for one in self.table.metadata.snapshots if one.snapshot_id not in self.contents]
        for place, one in enumerate(sorted(new, key=lambda one: one.sequence_number or 0)):
            self.contents[one.snapshot_id] = shown[min(place, len(shown) - 1)]
        self._last = self.main

    def _shows(self, branch: str) -> Contents:
        snapshot = self.table.snapshot_by_name(branch)
        return self.contents[snapshot.snapshot_id] if snapshot else frozenset()

    def _any(self) -> Snapshot:
        return self.random.choice(self.table.metadata.snapshots)

    def _ids(self) -> set[int]:
        return {one.snapshot_id for one in self.table.metadata.snapshots}

    def _without_deletes(self) -> bool:
        table = self.table
        snapshot = table.current_snapshot()
        listed = snapshot.manifests(table.io) if snapshot else []
        return all(one.content == ManifestContent.DATA for one in listed)


def _older(document: Any, time_ms: int) -> Any:
    """The JSON ``document`` with every time in it set back."""
    if isinstance(document, list):
        return [_older(one, time_ms) for one in document]
    if isinstance(document, dict):
        return {name: value - time_ms if name in _TIMES else _older(value, time_ms) for name, value in document.items()}
    return document


_ALL: Final[tuple[Callable[[Hands], None], ...]] = (
    *(Hands.land, Hands.land, Hands.catch_up, Hands.drop, Hands.rewrite, Hands.rewrite_manifests, Hands.hide),
    *(Hands.tag, Hands.branch, Hands.forget, Hands.roll_back, Hands.expire, Hands.stray, Hands.stage, Hands.publish),
)
