"""Are two sets of records the same? By a fingerprint over (partition, offset, key, value) that knows no order."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa


@dataclass(frozen=True)
class Fingerprint:
    """Number of records, and sum and exclusive or of their 64-bit hashes as text (JSON has no integers of 128 bits)."""

    records: int
    total: str
    mixed: str

    def __str__(self) -> str:
        return f"{self.records:,} records ({self.mixed})"


def fingerprint(files: Sequence[Path], only: pa.Table | None = None) -> Fingerprint:
    """The fingerprint of the records in Parquet ``files``.

    ``only``, of columns partition and offset, restricts it to these records.
    """
    kept = 'SEMI JOIN kept USING (partition, "offset")' if only is not None else ""
    # A path that says partition=0 is no column here: every file has the column itself.
    query = f"""
        SELECT count(*), sum(print::HUGEINT)::VARCHAR, bit_xor(print)::VARCHAR FROM (
            SELECT hash(partition, "offset", key, value) AS print
            FROM read_parquet($files, hive_partitioning = false) {kept})"""
    with duckdb.connect() as connection:
        if only is not None:
            connection.register("kept", only)
        row = connection.execute(query, {"files": [str(path) for path in files]}).fetchone()
    assert row is not None
    return Fingerprint(row[0], str(row[1] or 0), str(row[2] or 0))
