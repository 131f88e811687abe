"""The Spark alternatives to Firn, and Iceberg's own file compaction.

All run in the session that Firn's tasks run in, which has Iceberg's runtime for them. Tables are copies of the same
metadata; writers get the same target file size, and the distribution that is fastest for them here: none for one topic
partition (the window's own tasks write), Iceberg's default (hash by Iceberg partition) for several, which would
otherwise leave a file per task and partition.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from infra.bench.entries import Bench, Entry, Measured, Task
from infra.bench.inputs import Inputs
from infra.bench.resources import Share
from pipeline.lake.records import KAFKA_COLUMNS

_RECORD = ", ".join(f"`{name}`" for name in KAFKA_COLUMNS)
_LEVEL_IN = {Task.FULL: None, Task.CLEAN: 1, Task.MERGE: 0}


def _row_number(table: str, where: str, level: int) -> str:
    return f"""
        INSERT OVERWRITE {table}
        SELECT {_RECORD}, {level} AS level, delete_horizon FROM (
            SELECT *, row_number() OVER (PARTITION BY topic, `partition`, `key` ORDER BY `offset` DESC) AS place
            FROM {table} {where})
        WHERE place = 1"""


def _max_by(table: str, where: str, level: int) -> str:
    columns = ", ".join(f"r.`{name}`" for name in KAFKA_COLUMNS)
    return f"""
        INSERT OVERWRITE {table}
        SELECT {columns}, {level} AS level, r.delete_horizon FROM (
            SELECT max_by(struct({_RECORD}, delete_horizon), `offset`) AS r
            FROM {table} {where} GROUP BY topic, `partition`, `key`)"""


def _overwrite(name: str, title: str, statement: Callable[[str, str, int], str], task: Task) -> Entry:
    @contextmanager
    def measured(bench: Bench, inputs: Inputs) -> Iterator[Measured]:
        done = Measured()
        # An overwrite replaces the whole table: for a task on the head alone the tail is gone with it, unread.
        state = inputs.merged if task is Task.CLEAN else inputs.whole
        where = "" if task is Task.FULL else f"WHERE level = {_LEVEL_IN[task]}"
        with inputs.copy("peer", state, **_distribution(inputs)) as table:
            with done.timed(Share.SPARK):
                bench.spark.sql(statement(_name(inputs, table), where, 3 if task is Task.FULL else 2)).collect()
            done.files = inputs.live(table)
            yield done

    return Entry(name, title, task, measured)


@contextmanager
def _merge_into(bench: Bench, inputs: Inputs) -> Iterator[Measured]:
    columns = ", ".join(f"r.`{name}`" for name in KAFKA_COLUMNS)
    done = Measured()
    with (
        inputs.copy("peer", inputs.tail, **_distribution(inputs)) as tail,
        inputs.copy("peer_head", inputs.whole) as whole,
    ):
        with done.timed(Share.SPARK):
            bench.spark.sql(f"""
                MERGE INTO {_name(inputs, tail)} t USING (
                    SELECT {columns}, 3 AS level, r.delete_horizon FROM (
                        SELECT max_by(struct({_RECORD}, delete_horizon), `offset`) AS r
                        FROM {_name(inputs, whole)} WHERE level IS NULL GROUP BY topic, `partition`, `key`)) s
                ON t.topic = s.topic AND t.`partition` = s.`partition` AND t.level = 3 AND t.`key` = s.`key`
                WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *""").collect()
        done.files = inputs.live(tail)
        yield done


def _bin_pack(task: Task) -> Entry:
    where = {} if task is Task.FULL else {"where": "level IS NULL" if task is Task.MERGE else "level = 1"}

    @contextmanager
    def measured(bench: Bench, inputs: Inputs) -> Iterator[Measured]:
        done = Measured()
        state = inputs.merged if task is Task.CLEAN else inputs.whole
        with inputs.copy("peer", state) as table:
            arguments = {"table": f"'{table}'"} | {name: f"'{text}'" for name, text in where.items()}
            arguments["options"] = f"map('rewrite-all', 'true', 'target-file-size-bytes', '{inputs.segment_bytes}')"
            named = ", ".join(f"{name} => {value}" for name, value in arguments.items())
            with done.timed(Share.SPARK):
                bench.spark.sql(f"CALL {inputs.lake.name}.system.rewrite_data_files({named})").collect()
            left = set(inputs.live(table))
            untouched = set() if task is Task.FULL else set(inputs.tail.files)
            done.files = sorted(left - untouched)
            yield done

    title = "Iceberg rewrite_data_files, bin-pack: copies every record"
    return Entry("bin-pack", title, task, measured, keeps_everything=True)


def _distribution(inputs: Inputs) -> dict[str, str]:
    if inputs.shape.partitions > 1:
        return {}
    return {"write_distribution-mode": "none", "write_spark_fanout_enabled": "true"}


def _name(inputs: Inputs, table: str) -> str:
    return f"{inputs.lake.name}.{table}"


ROW_NUMBER = tuple(
    _overwrite("row_number", "Spark row_number() = 1, INSERT OVERWRITE", _row_number, task)
    for task in (Task.FULL, Task.CLEAN)
)
MAX_BY = (_overwrite("max_by", "Spark max_by(struct, offset), INSERT OVERWRITE", _max_by, Task.FULL),)
MERGE_INTO = (Entry("MERGE", "Spark MERGE INTO of the head into the tail (copy-on-write)", Task.FULL, _merge_into),)
BIN_PACK = tuple(_bin_pack(task) for task in Task)
ENTRIES = (*BIN_PACK, *ROW_NUMBER, *MAX_BY, *MERGE_INTO)
