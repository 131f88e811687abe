"""Land the changelog in a new table, the way a sink would have: many small files, a commit per stretch of history."""

import shutil
from pathlib import Path

from rich.console import Console
from rich.progress import track

from firnlake.airflow.configuration import dag_id_of
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.land import land
from firnlake.table import records
from infra.demo import changelog, segments

TABLE = "kafka.files"
DAG_ID = dag_id_of(TABLE)
"""The DAG that dags/firn.toml makes for TABLE."""


def load(lake: Lake, folder: Path, console: Console) -> None:
    """Create TABLE and land everything; the files to land are written under `folder`, a commit's at a time."""
    records.create(lake, TABLE, {})
    changes = list(changelog.read_changelog())
    batches = segments.write_batches(changes, folder)
    landed = files = 0
    for batch in track(batches, "landing", total=segments.COMMITS, console=console, transient=True):
        landed += land(lake, TABLE, batch).segments
        files += len(batch)
        shutil.rmtree(batch[0].parent)
    folder.rmdir()
    console.print(f"{len(changes):,} records: {landed:,} segments in {files:,} files by {segments.COMMITS} commits")
