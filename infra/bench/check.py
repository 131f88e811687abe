"""Are two sets of records the same? By a fingerprint over (partition, offset, key, value) that knows no order."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
from pyiceberg.table import Table

from infra.bench.measure import WrongOutputError
from infra.foreign.files import on_disk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORD = ("partition", "offset", "key", "value")


@dataclass(frozen=True)
class Fingerprint:
    """Number of records, and sum and exclusive or of their 64-bit hashes."""

    records: int
    total: int
    mixed: int

    def __str__(self) -> str:
        return f"{self.records:,} records ({self.mixed})"


def same(actual: Fingerprint, wanted: Fingerprint) -> None:
    """Raise WrongOutputError unless the records are those that are wanted."""
    if actual != wanted:
        raise WrongOutputError(f"left {actual}, should be {wanted}")


def fingerprint(records: Sequence[Path] | pa.RecordBatchReader, only: pa.Table | None = None) -> Fingerprint:
    """The fingerprint of the records in Parquet files, or as they are read.

    ``only``, of columns partition and offset, restricts it to these records.
    """
    kept = 'SEMI JOIN kept USING (partition, "offset")' if only is not None else ""
    with duckdb.connect() as connection:
        if isinstance(records, pa.RecordBatchReader):
            connection.register("seen", records)
        elif records:
            # A path that says partition=0 is no column here: every file has the column itself.
            connection.read_parquet([str(path) for path in records], hive_partitioning=False).create_view("seen")
        else:
            return Fingerprint(0, 0, 0)
        if only is not None:
            connection.register("kept", only)
        row = connection.execute(f"""
            SELECT count(*), coalesce(sum(print::HUGEINT), 0), coalesce(bit_xor(print), 0) FROM (
                SELECT hash(partition, "offset", key, value) AS print FROM seen {kept})""").fetchone()
    assert row is not None
    return Fingerprint(*map(int, row))


def visible(table: Table) -> Fingerprint:
    """The fingerprint of the records that PyIceberg shows."""
    if any(task.delete_files for task in table.scan().plan_files()):
        return fingerprint(table.scan(selected_fields=RECORD).to_arrow_batch_reader())
    return fingerprint(live(table))


def visible_to_spark(frame: "DataFrame", scratch: Path) -> Fingerprint:
    """The fingerprint of the records that Spark shows: it reads equality deletes as well."""
    folder = scratch / "seen"
    frame.select(*RECORD).write.mode("overwrite").parquet(str(folder))
    actual = fingerprint(sorted(folder.glob("*.parquet")))
    shutil.rmtree(folder)
    return actual


def live(table: Table) -> list[Path]:
    """The data files of the current snapshot."""
    return sorted(on_disk(task.file.file_path) for task in table.scan().plan_files())
