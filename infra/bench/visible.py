"""What readers see of a table with row-level deletes, and full scans of it by three readers."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import duckdb
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table

from infra.bench import check
from infra.bench.check import Fingerprint
from infra.bench.entries import Bench
from infra.bench.inputs import local
from pipeline.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORD = ("partition", "offset", "key", "value")
_PRINT = "count(*), sum(print::HUGEINT)::VARCHAR, bit_xor(print)::VARCHAR"


def fingerprint(table: Table) -> Fingerprint:
    """The fingerprint of the records that PyIceberg shows, comparable with ``infra.bench.check``."""
    seen = table.scan(selected_fields=RECORD).to_arrow_batch_reader()  # noqa: F841  # DuckDB finds it by its name
    with duckdb.connect() as connection:
        row = connection.execute(
            f'SELECT {_PRINT} FROM (SELECT hash(partition, "offset", key, value) AS print FROM seen)'
        ).fetchone()
    assert row is not None
    return Fingerprint(row[0], str(row[1] or 0), str(row[2] or 0))


def fingerprint_by_spark(bench: Bench, lake: Lake, identifier: str) -> Fingerprint:
    """The fingerprint of the records that Spark shows: it reads equality deletes as well."""
    folder = bench.scratch / "seen"
    frame = bench.spark.table(f"{lake.name}.{identifier}").select(*RECORD)
    frame.write.mode("overwrite").parquet(str(folder))
    actual = check.fingerprint(sorted(folder.glob("*.parquet")))
    shutil.rmtree(folder)
    return actual


def scans(lake: Lake, identifier: str, spark: "SparkSession") -> Mapping[str, Callable[[], int]]:
    """Full scans of all columns of a table, by reader; each returns the number of rows that it saw."""
    table = lake.table(identifier)

    def by_spark() -> int:
        from pyspark.sql import Observation
        from pyspark.sql.functions import count, lit

        # Counted as they pass: Iceberg answers a count of its own from metadata where no row-level delete is.
        seen = Observation()
        frame = spark.table(f"{lake.name}.{identifier}").observe(seen, count(lit(1)).alias("rows"))
        frame.write.format("noop").mode("overwrite").save()
        rows: int = seen.get["rows"]
        return rows

    def by_pyiceberg() -> int:
        return sum(len(batch) for batch in table.scan().to_arrow_batch_reader())

    def by_duckdb() -> int:
        return sum(_rows(table))

    return {"Spark": by_spark, "DuckDB": by_duckdb, "PyIceberg": by_pyiceberg}


def _rows(table: Table) -> Iterator[int]:
    """Numbers of rows by batch, read by DuckDB's Parquet reader: data files without the rows in delete files. Its own
    reader of Iceberg is an extension that has to be downloaded; this is what that does."""
    tasks = list(table.scan().plan_files())
    data = [str(local(task.file.file_path)) for task in tasks]
    deletes = sorted({file.file_path for task in tasks for file in task.delete_files})
    assert all(file.content == DataFileContent.POSITION_DELETES for task in tasks for file in task.delete_files), (
        "only position deletes are read here"
    )
    names = {task.file.file_path: str(local(task.file.file_path)) for task in tasks}
    with duckdb.connect() as connection:
        query = "SELECT * FROM read_parquet($data, hive_partitioning = false, filename = true, file_row_number = true)"
        given: dict[str, object] = {"data": data}
        if deletes:
            connection.execute("CREATE TABLE named (file_path VARCHAR, filename VARCHAR)")
            connection.executemany("INSERT INTO named VALUES (?, ?)", list(names.items()))
            query += """ ANTI JOIN (
                SELECT named.filename, pos AS file_row_number FROM read_parquet($deletes, hive_partitioning = false)
                JOIN named USING (file_path)) USING (filename, file_row_number)"""
            given["deletes"] = [str(local(path)) for path in deletes]
        for batch in connection.sql(query, params=given).to_arrow_reader():
            yield len(batch)
