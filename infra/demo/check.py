"""Read the demo's table with PyIceberg alone, count what is in it, and compare it with the repository's tree."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from infra.demo.changelog import Entry


@dataclass(frozen=True)
class LevelCount:
    """Content of one level of a topic partition. Bytes are file sizes; a duplicate is a record that is not the
    newest of its key within the level.
    """

    topic: str
    partition: int
    level: int
    segments: int
    records: int
    bytes: int
    duplicates: int
    tombstones: int


def count_levels(table: Table) -> Iterator[LevelCount]:
    """Count every topic partition and level, in that order; duplicates take a read of all keys."""
    files = [task.file for task in table.scan().plan_files()]
    place = [(file.partition[0], file.partition[1], file.partition[2] or 0) for file in files]
    segments = Counter(place)
    size: Counter[tuple[str, int, int]] = Counter()
    for where, file in zip(place, files, strict=True):
        size[where] += file.file_size_in_bytes
    records = table.scan(selected_fields=("topic", "partition", "level", "key", "value")).to_arrow()
    rows = pa.table(
        {
            "topic": records["topic"],
            "partition": records["partition"],
            "level": pc.coalesce(records["level"], pa.scalar(0, pa.int32())),
            "key": records["key"],
            "tombstone": pc.cast(pc.is_null(records["value"]), pa.int64()),
        }
    )
    grouped = rows.group_by(["topic", "partition", "level"]).aggregate(
        [("key", "count"), ("key", "count_distinct"), ("tombstone", "sum")]
    )
    for row in sorted(grouped.to_pylist(), key=lambda row: (row["topic"], row["partition"], row["level"])):
        where = (row["topic"], row["partition"], row["level"])
        yield LevelCount(
            *where,
            segments=segments[where],
            records=row["key_count"],
            bytes=size[where],
            duplicates=row["key_count"] - row["key_count_distinct"],
            tombstones=row["tombstone_sum"],
        )


def differences(table: Table, tree: Mapping[str, Entry]) -> list[str]:
    """Differences between the table's newest records and the tree; empty when they are the same.

    Also a difference: two records of one key in a topic partition, as a compacted table has one.
    """
    columns = ("topic", "partition", "key", "value")
    records = table.scan(selected_fields=columns).to_arrow().select(columns).to_pylist()
    keys = Counter((row["topic"], row["partition"], row["key"]) for row in records)
    wrong = [f"{key!r} is in {topic}-{part} {n} times" for (topic, part, key), n in keys.items() if n > 1]
    held = {
        row["key"].decode("utf-8", "surrogateescape"): Entry.parse(row["value"])
        for row in records
        if row["value"] is not None
    }
    wrong += [f"{path} is in the tree, not in the table" for path in sorted(tree.keys() - held.keys())]
    wrong += [f"{path} is in the table, not in the tree" for path in sorted(held.keys() - tree.keys())]
    wrong += [
        f"{path} is {held[path]} in the table, {tree[path]} in the tree"
        for path in sorted(held.keys() & tree.keys())
        if held[path] != tree[path]
    ]
    return wrong
