"""The Spark alternatives to Firn, and Iceberg's own file compaction.

All run in the session that Firn's tasks run in, which has Iceberg's runtime for them. Tables are copies of the same
metadata; writers get the same target file size, and the distribution that is fastest for them here: none for one topic
partition (the window's own tasks write), Iceberg's default (hash by Iceberg partition) for several, which would
otherwise leave a file per task and partition.
"""

from collections.abc import Mapping

from firnlake.table.records import KAFKA_COLUMNS
from infra.bench.inputs import Bench, Inputs, copy_of, on_copy
from infra.bench.measure import Figures, Run

_RECORD = ", ".join(f"`{name}`" for name in KAFKA_COLUMNS)
_OF_R = ", ".join(f"r.`{name}`" for name in KAFKA_COLUMNS)
_NEWEST = f"max_by(struct({_RECORD}, delete_horizon), `offset`) AS r"
_KEY = "topic, `partition`, `key`"


def entries(bench: Bench, inputs: Inputs) -> Mapping[str, Run]:
    """By name."""

    def overwrite(select: str) -> Figures:
        """Replace the whole table by what ``select`` makes of it."""
        return on_copy(
            bench,
            inputs.whole,
            lambda table: bench.sql(f"INSERT OVERWRITE {_name(bench, table)} {select.format(_name(bench, table))}"),
            inputs.newest,
            properties=_distribution(inputs),
        )

    return {
        "bin-pack": lambda: _bin_pack(bench, inputs),
        "row_number": lambda: overwrite(f"""
            SELECT {_RECORD}, 3 AS level, delete_horizon FROM (
                SELECT *, row_number() OVER (PARTITION BY {_KEY} ORDER BY `offset` DESC) AS place FROM {{}})
            WHERE place = 1"""),
        "max_by": lambda: overwrite(f"""
            SELECT {_OF_R}, 3 AS level, r.delete_horizon FROM (SELECT {_NEWEST} FROM {{}} GROUP BY {_KEY})"""),
        "MERGE": lambda: _merge(bench, inputs),
    }


def _merge(bench: Bench, inputs: Inputs) -> Figures:
    """Merge the newest records of the head into the tail, copy-on-write."""

    def work(tail: str) -> None:
        bench.sql(f"""
            MERGE INTO {_name(bench, tail)} t USING (
                SELECT {_OF_R}, 3 AS level, r.delete_horizon FROM (
                    SELECT {_NEWEST} FROM {_name(bench, whole)} WHERE level IS NULL GROUP BY {_KEY})) s
            ON t.topic = s.topic AND t.`partition` = s.`partition` AND t.level = 3 AND t.`key` = s.`key`
            WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *""")

    with copy_of(bench.lake, inputs.whole.metadata, "whole") as whole:
        return on_copy(bench, inputs.tail, work, inputs.newest, properties=_distribution(inputs))


def _bin_pack(bench: Bench, inputs: Inputs) -> Figures:
    """Copy every record."""
    options = f"map('rewrite-all', 'true', 'target-file-size-bytes', '{inputs.segment_bytes}')"
    return on_copy(
        bench,
        inputs.whole,
        lambda table: bench.call("rewrite_data_files", table, options=options),
        inputs.everything,
    )


def _distribution(inputs: Inputs) -> dict[str, str]:
    if inputs.shape.partitions > 1:
        return {}
    return {"write.distribution-mode": "none", "write.spark.fanout.enabled": "true"}


def _name(bench: Bench, table: str) -> str:
    return f"{bench.lake.name}.{table}"
