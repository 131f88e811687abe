"""Random histories of row-level deletes: after every commit Spark's reader, PyIceberg's and a plain model agree (C27).

A history takes several seconds. ``FIRN_HISTORIES`` says how many there are, from seed 1; ``make row-deletes`` runs 300.
"""

import os
from dataclasses import dataclass, field
from random import Random

import pytest

from firnlake.errors import ConflictError
from firnlake.publish.publish import publish_job
from infra.foreign.row_deletes import add, equality_file
from tests.support.row_deletes import data_file
from tests.support.seen_by_spark import spark_rows
from tests.support.topics import DAY, NOW, Topic
from tests.support.upserts import Row, Upserts, upserts

pytestmark = pytest.mark.nightly

HISTORIES = int(os.environ.get("FIRN_HISTORIES", "3"))
LANES = ("merge", "clean", "tier", "full")
ROUNDS = 4
SHARDS = 2
Compared = tuple[object, ...]
"""Values of the columns that an equality delete compares."""


@dataclass
class History:
    """A table and the rows that a reader of it should see; every change is a commit that is looked at."""

    table: Upserts
    random: Random
    visible: dict[tuple[int, int], Row] = field(default_factory=dict)
    """By shard and sequence number."""
    landed: int = 0
    happened: list[str] = field(default_factory=list)
    """What was done, in order."""

    def rows(self, count: int, shard: int) -> list[Row]:
        """New rows of one shard; a few have no id, and a few are tombstones."""
        self.landed += count
        return [
            Row(seq, self.random.choice([None, *range(6), *range(6)]), self.random.choice(["x", "y", "z", None]), shard)
            for seq in range(self.landed - count, self.landed)
        ]

    @property
    def shard(self) -> int:
        return self.random.randrange(SHARDS) if self.table.partitioned else 0

    def append(self) -> None:
        rows = self.rows(self.random.randint(1, 3), self.shard) + self.rows(self.random.randint(1, 3), self.shard)
        self.table.append(*rows)
        self.see(rows)

    def upsert(self) -> None:
        """Deletes and inserts of the same ids in one commit, as Flink does: the deletes reach older rows alone."""
        shard = self.shard
        rows = self.rows(self.random.randint(1, 3), shard)
        lake, name = self.table.topic.lake, self.table.topic.table
        held = lake.table(name)
        place = (held.spec().spec_id, (shard,) if self.table.partitioned else ())
        deletes = equality_file(held, ["id"], [(row.id,) for row in rows], *place)
        inserts = data_file(held, [{"score": 1.0, "note": "x"} | row._asdict() for row in rows], *place)
        add(lake, name, [deletes], [inserts])
        self.forget(("id",), {(row.id,) for row in rows}, shard)
        self.see(rows)

    def delete_equal(self) -> None:
        """An equality delete by the key, by another column, or by both."""
        columns = self.random.choice([("id",), ("city",), ("id", "city")])
        shard = self.shard
        self.happened.append(f"equality delete by {', '.join(columns)} in shard {shard}")
        values = {tuple(getattr(row, name) for name in columns) for row in self.rows(self.random.randint(1, 2), shard)}
        self.table.delete(columns, *values, shard=shard)
        self.forget(columns, values, shard)

    def delete_at(self) -> None:
        """Position deletes of a few rows, in one delete file per partition, some of them hidden before."""
        chosen = {self.random.randrange(self.landed) for _ in range(self.random.randint(1, 3))}
        self.happened.append(f"position deletes of {sorted(chosen)}")
        if any(seq in chosen for _, seq in self.visible):
            self.table.delete_at(*chosen)
        self.visible = {place: row for place, row in self.visible.items() if row.seq not in chosen}

    def see(self, rows: list[Row]) -> None:
        self.visible |= {(row.shard, row.seq): row for row in rows}

    def forget(self, columns: tuple[str, ...], values: set[Compared], shard: int) -> None:
        self.visible = {
            place: row
            for place, row in self.visible.items()
            if row.shard != shard or tuple(getattr(row, name) for name in columns) not in values
        }

    def clean(self, lane: str, now: int) -> None:
        """A lane, now and then with deletes that land while it works. What is gone afterwards was superseded, a
        tombstone or without a key."""
        stages = self.table.topic.validated(self.table.topic.plans(lane, now, force=True))
        self.happened.append(f"lane {lane} planned")
        meanwhile = self.random.choice([self.delete_equal, self.delete_at, None, None])
        before = len(self.happened)
        if meanwhile:
            meanwhile()
            self.look()
        in_the_way = any("city" in one or "position" in one for one in self.happened[before:])
        for stage in stages:
            failures = publish_job(self.table.topic.lake, stage).failures.values()
            assert all(isinstance(one, ConflictError) for one in failures)
            assert in_the_way or not failures, "deletes by the key are in no plan's way"
        seen = {(row.shard, row.seq): row for row in self.table.seen()}
        assert seen.items() <= self.visible.items(), "nothing comes back"
        newest = {(row.shard, row.id): row for _, row in sorted(self.visible.items())}
        gone = [row for row in newest.values() if (row.shard, row.seq) not in seen]
        lost = [row for row in gone if row.city is not None and row.id is not None]
        assert not lost, self.happened
        self.visible = seen

    def look(self) -> None:
        """Every reader sees the rows that should be visible, each once."""
        wanted = sorted(self.visible.values(), key=lambda row: row.seq)
        assert spark_rows(self.table) == wanted
        table = self.table.topic.lake.table(self.table.topic.table)
        scan = table.scan(selected_fields=("seq", "id", "city", "shard"))
        try:
            rows = scan.to_arrow().to_pylist()
        except ValueError as refused:
            assert "equality deletes" in str(refused)  # noqa: PT017  # PyIceberg reads position deletes only
        else:
            assert sorted((Row(**row) for row in rows), key=lambda row: row.seq) == wanted


@pytest.mark.parametrize("seed", range(1, HISTORIES + 1))
def test_c27_every_reader_agrees_after_every_commit(topic: Topic, seed: int) -> None:
    random = Random(seed)  # noqa: S311  # no secret
    table = upserts(topic.lake, topic.engine, partitioned=seed % 2 == 0, tier_runs="2", delete_retention_ms="0")
    table.topic.session = topic.session
    history = History(table, random)
    for step in range(ROUNDS):
        changes = [history.append, history.append]
        changes += random.sample([history.upsert, history.delete_equal, history.delete_at, history.append], 2)
        for change in changes:
            change()
            history.look()
        history.clean(random.choice(LANES), NOW + step * DAY)
        history.look()
    history.clean("full", NOW + ROUNDS * DAY)
    history.look()
