"""Read the demo's table with PyIceberg, count what is in it by DuckDB, and compare it with the repository's tree."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

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


def count_levels(table: Table) -> list[LevelCount]:
    """Every topic partition and level, in that order; duplicates take a read of all keys."""
    import duckdb

    with duckdb.connect() as connection:
        connection.register("files", table.inspect.data_files())
        connection.register(
            "seen", table.scan(selected_fields=("topic", "partition", "level", "key", "value")).to_arrow()
        )
        counted = connection.execute("""
            WITH placed AS (SELECT unnest(partition), file_size_in_bytes FROM files),
            sizes AS (
                SELECT topic, partition, coalesce(level, 0) AS level, count(*) AS segments,
                    sum(file_size_in_bytes)::BIGINT AS bytes
                FROM placed GROUP BY ALL),
            counts AS (
                SELECT topic, partition, coalesce(level, 0) AS level, count(*) AS records,
                    count(*) - count(DISTINCT key) AS duplicates, count(*) FILTER (value IS NULL) AS tombstones
                FROM seen GROUP BY ALL)
            SELECT topic, partition, level, segments, records, bytes, duplicates, tombstones
            FROM sizes JOIN counts USING (topic, partition, level) ORDER BY ALL""")
        return [LevelCount(*row) for row in counted.fetchall()]


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
