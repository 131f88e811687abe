"""The DuckDB alternative to Firn; also as a whole process: ``python -m infra.bench.duckdb_copy``.

It imports nothing but DuckDB, as such a script would.
"""

import json
import sys
from collections.abc import Sequence

import duckdb


def qualify(files: Sequence[str], out: str, size: int, level: int, threads: int, scratch: str) -> None:
    """Write the newest record per key of Parquet ``files`` to folder ``out``, in files of about ``size`` bytes."""
    with duckdb.connect(config={"threads": threads, "temp_directory": scratch}) as connection:
        connection.execute("SET preserve_insertion_order = false")
        connection.execute(
            f"""COPY (
                SELECT * FROM read_parquet($files, hive_partitioning = false)
                QUALIFY row_number() OVER (PARTITION BY topic, partition, key ORDER BY "offset" DESC) = 1
            ) TO '{out}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL {level}, FILE_SIZE_BYTES {size})""",
            {"files": list(files)},
        )


if __name__ == "__main__":
    qualify(**json.load(sys.stdin))
