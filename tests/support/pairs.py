"""Two tables with one history, cleaned in two ways that must not differ: record by record, file by file."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.iceberg.branches import QUARANTINE, REMOVED_TOMBSTONES, SIDE_BRANCHES, on_branch
from firnlake.job.lane import Lane
from firnlake.table.segments import read_entries
from infra.foreign.files import on_disk
from tests.support.topics import DAY, NOW, Record, Topic

KEYS = (None, b"", *(b"k%02d" % number for number in range(20)))
PARTITIONS = 3

Files = list[tuple[tuple[str, int], list[dict[str, Any]]]]
"""Of every live data file its topic partition and its records in the file's order."""


@dataclass
class Pair:
    """``topics`` have the same records; the second is cleaned within ``around``."""

    topics: tuple[Topic, Topic]
    around: Callable[[], AbstractContextManager[object]] = field(default=nullcontext)

    def create(self, **properties: str) -> "Pair":
        for topic in self.topics:
            topic.create(**properties)
        return self

    def land(self, *batches: Sequence[Record]) -> "Pair":
        for topic in self.topics:
            topic.land(*batches)
        return self

    def clean(self, lane: Lane, now: int = NOW) -> int:
        """Clean both by the same clock; how many plans of each were published. What differs is an AssertionError."""
        one, other = self.topics
        ours = one.clean(lane, now, force=True)
        with self.around():
            theirs = other.clean(lane, now, force=True)
        # C24: how large a file becomes, its metadata decide as well, in which tables have their names.
        plain = [
            [counts.model_copy(update={"bytes_in": 0, "bytes_out": 0}) for counts in side] for side in (ours, theirs)
        ]
        assert plain[0] == plain[1]
        for branch in (MAIN_BRANCH, *SIDE_BRANCHES):
            assert files(one, branch) == files(other, branch)
        return len(ours)


def files(topic: Topic, branch: str) -> Files:
    """The data files on a branch of a topic's table."""
    found = []
    for entry, _ in read_entries(on_branch(topic.lake.table(topic.table), branch)):
        file = entry.data_file
        rows = pq.read_table(on_disk(file.file_path), partitioning=None).to_pylist()
        found.append(((file.partition[0], file.partition[1]), rows))
    return sorted(found, key=lambda file: (*file[0], file[1][0]["offset"]))


def through_all_lanes(pair: Pair, seed: int) -> None:
    """Random records go through all lanes: several plans share a job, records come late, twice, or without a key."""
    chance = Random(seed)  # noqa: S311  # the same histories in every run
    pair.create(delete_retention_ms="1000", clean_segments="1", plan_max_records="60")
    offsets = sorted(range(90), key=lambda offset: offset + chance.randint(0, 12))
    published, now = 0, NOW
    for lane in (Lane.MERGE, Lane.CLEAN, Lane.FULL, Lane.MERGE, Lane.FULL, Lane.FULL):
        for _ in range(2):
            numbers, offsets = sorted(offsets[:9]), offsets[9:]
            written = [_record(offset, partition, chance) for partition in range(PARTITIONS) for offset in numbers]
            if written:
                pair.land(written, written[: chance.randint(1, 3)])
        now += chance.choice([0, 500, DAY])
        published += pair.clean(lane, now)
    pair.clean(Lane.FULL, now + DAY)
    assert published > 2 * PARTITIONS
    assert files(pair.topics[0], QUARANTINE)
    assert files(pair.topics[0], REMOVED_TOMBSTONES)


def _record(offset: int, partition: int, chance: Random) -> Record:
    value = None if chance.random() < 0.3 else chance.randbytes(chance.randint(0, 40))
    return Record(offset, chance.choice(KEYS), value, partition, headers=(("h", b"%d" % offset),))
