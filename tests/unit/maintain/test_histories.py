"""Random histories of a table with collections in between, against a model of what is referred to and what must go."""

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from hypothesis import Phase, example, given
from hypothesis import strategies as st

from firnlake import clock
from firnlake.errors import ConflictError
from firnlake.iceberg.branches import QUARANTINED
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.deleter import Kind
from firnlake.iceberg.files import data_folder
from firnlake.ingest import quarantine
from firnlake.job.lane import Lane
from firnlake.job.plan import stage_parts
from firnlake.job.stage import Stage, stages_of
from firnlake.maintain.maintain import maintain_table
from firnlake.plan.make import plan_table
from firnlake.table import records
from firnlake.table.policy import DAY_MS
from infra.foreign.files import files_under, on_disk
from tests.support import lakes
from tests.support.examples import bounded
from tests.support.lakes import Fates, row
from tests.support.publishing import publish

pytestmark = pytest.mark.nightly

HOUR_MS = 3_600_000
ORPHANS_AGE_MS: Final = 3 * DAY_MS
_numbers = itertools.count()

changes = st.sampled_from(
    [
        "land",
        "land",
        "stage",
        "stage",
        "publish",
        "publish",
        "forget",
        "stray",
        "drop",
        "expire",
        "tag",
        "age",
        "clear",
    ]
)
collections = st.sampled_from([0, 2 * HOUR_MS, 30 * HOUR_MS, 4 * DAY_MS, 6 * DAY_MS])
histories = st.lists(st.tuples(st.lists(changes, min_size=2, max_size=6), collections), min_size=1, max_size=3)


@dataclass
class History:
    """A table that things happen to, and what is known of it beside what Firn's own code says."""

    lake: Lake
    table: str = field(default_factory=lambda: f"lake.t{next(_numbers)}")
    landed: int = 0
    foreign: set[Path] = field(default_factory=set)
    ready: list[str] = field(default_factory=list)

    def land(self) -> None:
        """Two segments of a topic partition of their own, with a record without a key."""
        part, self.landed = self.landed % 2, self.landed + 1
        start = 10 * self.landed
        rows = [row(start, key=None), row(start + 1), row(start + 2)]
        before = lakes.paths(self.lake.table(self.table))
        lakes.append(self.lake, [one | {"partition": part, "headers": []} for one in rows], self.table)
        self.foreign |= {on_disk(path) for path in lakes.paths(self.lake.table(self.table)) - before}

    def stage(self) -> None:
        """Clean a topic partition, up to where it could be published."""
        for plan in plan_table(self.lake, self.table, Lane.FULL, lakes.NOW, force=True):
            if plan.partition == self.landed % 2 and plan.stage not in stages_of(self.lake, self.table):
                seen = self.lake.table(self.table).scan(row_filter=f"partition = {plan.partition}").to_arrow()
                lost = [one | {"level": QUARANTINED} for one in seen.to_pylist() if one["key"] is None]
                kept = [max(seen.to_pylist(), key=lambda one: one["offset"]) | {"level": 3}]
                fates = Fates(superseded=plan.records - len(lost) - 1, quarantined=len(lost))
                self.ready.append(lakes.ready(self.lake, plan, kept + lost, fates).identifier)

    def publish(self) -> None:
        if self.ready:
            stage = self.ready.pop(0)
            if stage in stages_of(self.lake, self.table):
                try:
                    publish(self.lake, stage)
                except ConflictError:
                    return

    def forget(self) -> None:
        """A process died while it deleted a stage, or a writer outlived it."""
        for name in stages_of(self.lake, self.table)[:1]:
            for path in files_under(on_disk(Stage.load(self.lake, name).documents.location)):
                path.unlink()

    def stray(self) -> None:
        """Remains of killed writers: one of Firn's, one of others."""
        table = self.lake.table(self.table)
        data = on_disk(table.location()) / "data"
        own = on_disk(data_folder(table))
        foreign = data / f"foreign-{next(_numbers)}.parquet"
        for path in (own / f"{next(_numbers):016x}" / f"lost-{next(_numbers)}.parquet", foreign):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"PAR1")
        self.foreign.add(foreign)

    def drop(self) -> None:
        if self.lake.table(self.table).scan(row_filter="partition = 0").count():
            self.lake.table(self.table).delete("partition = 0")

    def expire(self) -> None:
        """The owner expires the snapshots of the table, those of its quarantine among them."""
        maintenance = self.lake.table(self.table).maintenance
        maintenance.expire_snapshots().older_than(datetime(2100, 1, 1, tzinfo=UTC)).commit()

    def tag(self) -> None:
        snapshot_id = lakes.snapshot(self.lake, self.table)
        if snapshot_id:
            manage = self.lake.table(self.table).manage_snapshots()
            manage.create_tag(snapshot_id, f"tag-{next(_numbers)}").commit()

    def age(self) -> None:
        """All that lies there was written ten days ago."""
        then = clock.now_ms() / 1000 - 10 * DAY_MS / 1000
        for path in files_under(self._data):
            os.utime(path, (then, then))

    def clear(self) -> None:
        """Somebody clears the quarantine."""
        quarantine.clear(self.lake, self.table, quarantine.as_of_now(self.lake, self.table))

    @property
    def _data(self) -> Path:
        return on_disk(self.lake.table(self.table).location()) / "data"

    def held(self) -> Iterator[Path]:
        """Files that a reader can reach, in any snapshot of any branch."""
        table = self.lake.table(self.table)
        for snapshot in table.metadata.snapshots:
            for task in table.scan(snapshot_id=snapshot.snapshot_id).plan_files():
                yield on_disk(task.file.file_path)

    def removable(self, now_ms: int) -> set[Path]:
        """Files that are past the limit, that nobody can reach, and whose stage is gone."""
        staged = {stage_parts(name)[1] for name in stages_of(self.lake, self.table)}
        return {
            path
            for path in files_under(self._data) - set(self.held())
            if staged.isdisjoint(path.parts) and now_ms - path.stat().st_mtime * 1000 > ORPHANS_AGE_MS
        }

    def collect(self, after_ms: int) -> None:
        """Collect, and hold what became of it against what was there."""
        now_ms = clock.now_ms() + after_ms
        offsets = lakes.offsets(self.lake, self.table)
        foreign = {path for path in self.foreign if path.exists()}
        may_go = set(self.held()) | self.removable(now_ms)
        shown = maintain_table(self.lake, self.table, now_ms, remove=False)
        number = self.lake.table(self.table).metadata.next_sequence_number()
        done = maintain_table(self.lake, self.table, now_ms, remove=True)
        # By a clock days ahead the first of two snapshots that maintenance adds expires at once: no look foresees it.
        added = self.lake.table(self.table).metadata.next_sequence_number() - number
        unforeseen = {Kind.SNAPSHOTS, Kind.EXPIRED} if added > 1 else set()
        went, foreseen = ({one for one in found if one.goes and one.kind not in unforeseen} for found in (done, shown))
        assert foreseen == went, "what is shown goes"
        held = set(self.held())
        assert {path for path in held if not path.exists()} == set(), "no file that is referred to was removed"
        assert {path for path in foreign - may_go if not path.exists()} == set(), "nor another writer's young one"
        assert lakes.offsets(self.lake, self.table) == offsets, "readers see what they saw"
        assert self.removable(now_ms) == set(), "everything past its limit is gone"
        again = maintain_table(self.lake, self.table, now_ms, remove=True)
        assert [one for one in again if one.goes] == [], "C25: nothing is left to do"
        assert {one.kind for one in again} <= {Kind.STAGE, Kind.DATA, Kind.REF, Kind.ORPHANS}


# A history takes a second: looking for a shorter one that fails as well would take minutes.
@bounded(4, phases=[Phase.explicit, Phase.generate])
@given(histories)
@example(happened=[(["forget", "age", "land", "stage"], 6 * DAY_MS)])
def test_c25_only_what_nothing_refers_to_is_collected(lake: Lake, happened: list[tuple[list[str], int]]) -> None:
    history = History(lake)
    records.create(lake, history.table, {"firn.maintenance": "manifests,orphans,snapshots"})
    history.land()
    for names, after_ms in happened:
        for name in names:
            getattr(history, name)()
        history.collect(after_ms)
