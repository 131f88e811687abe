"""Land the changelog in a new table, the way a sink would have: many small files, a commit per stretch of history.

Between the commits Firn compacts one topic twice in this process, as scheduled runs would have: its tail and a run of
level 2 are there when the DAG comes to the last commits.
"""

import shutil
from pathlib import Path

from rich.console import Console
from rich.progress import track

from firnlake import clock
from firnlake.airflow.configuration import dag_id_of
from firnlake.engine.local import LocalEngine
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.land import land
from firnlake.lanes import Lane
from firnlake.plan.read_states import Scope
from firnlake.run import run
from firnlake.table import records
from infra.demo import changelog, segments

TABLE = "kafka.files"
DAG_ID = dag_id_of(TABLE)
"""The DAG that dags/firn.toml makes for TABLE."""


LEVELED = "kafka.tests"
"""The topic that goes through every level: by numbers of segments and once a day, as in WarpStream. The other topic is
cleaned as Kafka would clean it: its dirty ratio makes lane `full` due."""
PROPERTIES = {
    "firn.topic.kafka.sources.profile": "kafka",
    f"firn.topic.{LEVELED}.profile": "warpstream",
    # WarpStream's own thresholds (32, 32 and 10) would need ten thousand files.
    f"firn.topic.{LEVELED}.merge.segments": "8",
    f"firn.topic.{LEVELED}.clean.segments": "4",
    f"firn.topic.{LEVELED}.tier.runs": "2",
}
RUNS_AFTER = (8, 16)
"""The numbers of commits after which Firn runs."""


def load(lake: Lake, folder: Path, console: Console) -> None:
    """Create TABLE and land everything; the files to land are written under `folder`, a commit's at a time."""
    records.create(lake, TABLE, PROPERTIES)
    changes = list(changelog.read_changelog())
    batches = segments.write_batches(changes, folder)
    landed = files = 0
    for number, batch in enumerate(
        track(batches, "landing", total=segments.COMMITS, console=console, transient=True), 1
    ):
        landed += land(lake, TABLE, batch).segments
        files += len(batch)
        shutil.rmtree(batch[0].parent)
        if number in RUNS_AFTER:
            compact(lake)
    folder.rmdir()
    console.print(
        f"{len(changes):,} records: {landed:,} segments in {files:,} files by {segments.COMMITS} commits; "
        f"{len(RUNS_AFTER)} runs of Firn in between"
    )


def compact(lake: Lake) -> None:
    """Run the lanes of the levels once on what LEVELED has so far."""
    engine, scope = LocalEngine(), Scope(topics=(LEVELED,))
    for lane in run(lake, TABLE, clock.now_ms(), lambda _: engine, [Lane.MERGE, Lane.CLEAN, Lane.FULL], scope=scope):
        for plan, failure in lane.failures.items():
            raise SystemExit(f"firn: {plan}: {failure}")
