"""A real Airflow in a folder of its own: metadata database, a few tables, a DAG each.

Airflow reads its home when it is imported, and is imported in child processes only: nothing of it leaks into the
other tests of this process, and nothing of the user's into it.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from firnlake.airflow.configuration import dag_id_of
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.land import land
from firnlake.table import records
from infra.airflow import local
from infra.environment import CHECKOUT
from infra.foreign.files import on_disk
from tests.support.records import LOW_THRESHOLDS, Record, rows_of

MINUTES = 10 * 60  # seconds: far more than a run takes; a hang must not hold up everything

TABLES = ("t.busy", "t.elsewhere", "t.idle", "t.old", "t.refused", "t.shown", "t.turnless", "t.waits")
SETTINGS = {
    "t.busy": 'engine = "spark"',
    "t.elsewhere": 'engine = "auto"\nconnection = "spark_elsewhere"',
}


@dataclass(frozen=True)
class Run:
    """The end of a DAG run: the last state of every task that ran, and the errors of the failed ones."""

    succeeded: bool
    states: dict[str, str]
    errors: dict[str, str]
    log: str


@dataclass(frozen=True)
class LocalAirflow:
    """The environment of an Airflow and its lake."""

    environment: dict[str, str]
    lake: Lake
    home: Path

    def python(
        self, *arguments: str, stdin: str | None = None, **changes: str | None
    ) -> subprocess.CompletedProcess[str]:
        """Run Python under Airflow's environment, with ``stdin`` as its standard input.

        A variable that is changed to None is left out.
        """
        environment = {name: value for name, value in (self.environment | changes).items() if value is not None}
        return subprocess.run(
            [sys.executable, *arguments],
            env=environment,
            cwd=CHECKOUT,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=MINUTES,
            check=False,
        )

    def run(
        self, table: str, params: dict[str, object] | None = None, *, marked: str | None = None, **changes: str | None
    ) -> Run:
        """Run the table's DAG once, without scheduler or server, and without the DAGs of other tables.

        The task ``marked`` does not run, and counts as a success.
        """
        log = self.home / f"{table}.log"
        log.unlink(missing_ok=True)
        dag_id = dag_id_of(table)
        alone = {"FIRN_TABLES": str(self.home / f"{table}.toml")} | changes
        command = ("-m", "infra.airflow.headless", dag_id, str(log), *([marked] if marked else []))
        done = self.python(*command, stdin=json.dumps(params or {}), **alone)
        said = log.read_text() if log.exists() else done.stderr
        events = [event for line in done.stdout.splitlines() if "task" in (event := json.loads(line))]
        return Run(
            succeeded=done.returncode == 0,
            states={event["task"]: event["state"] for event in events},
            errors={event["task"]: event["error"] for event in events if "error" in event},
            log=said,
        )

    def land(self, table: str, *batches: dict[int, list[str]], first: int = 0) -> None:
        """Land each batch as a commit: per partition of the topic `orders`, `key=value` records (`key=` deletes), from
        offset `first` on."""
        log_end: dict[int, int] = {}
        for number, batch in enumerate(batches):
            found = []
            for partition, pairs in batch.items():
                for pair in pairs:
                    key, _, value = pair.partition("=")
                    offset = log_end.get(partition, first)
                    log_end[partition] = offset + 1
                    found.append(Record(offset, key.encode(), value.encode() or None, partition, timestamp_ms=offset))
            path = self.home / f"batch-{number}.parquet"
            pq.write_table(rows_of(found), path)
            land(self.lake, table, [path])

    def seen(self, table: str) -> dict[int, list[tuple[int, str, str | None]]]:
        """The records that a reader sees, by partition: offset, key and value (None: a tombstone), in offset order."""
        found: dict[int, list[tuple[int, str, str | None]]] = {}
        for row in sorted(self.lake.table(table).scan().to_arrow().to_pylist(), key=lambda row: row["offset"]):
            value = None if row["value"] is None else row["value"].decode()
            found.setdefault(row["partition"], []).append((row["offset"], row["key"].decode(), value))
        return found

    def levels(self, table: str) -> dict[int, list[int]]:
        """The levels of the live segments, by partition, lowest first."""
        found: dict[int, list[int]] = {}
        for task in self.lake.table(table).scan().plan_files():
            found.setdefault(task.file.partition[1], []).append(task.file.partition[2] or 0)
        return {partition: sorted(levels) for partition, levels in found.items()}


def without_database(home: Path) -> LocalAirflow:
    """An Airflow without a metadata database, which parsing does not need."""
    return LocalAirflow(local.environment(home), Lake.embedded(home), home)


def make(home: Path, tables: Mapping[str, str], migrated: Path) -> LocalAirflow:
    """An Airflow with the metadata database and the configuration of `migrated`, and with `tables` created and empty;
    each with its lines in tables.toml."""
    lake = Lake.embedded(home)
    for table in tables:
        records.create(lake, table, LOW_THRESHOLDS)
    file = home / "tables.toml"
    # Without Spark where Spark is not the subject.
    defaults = '[defaults]\nengine = "local"\nretry_seconds = 1\n'
    sections = {table: f'[tables."{table}"]\n{own}\n' for table, own in tables.items()}
    file.write_text(defaults + "\n".join(sections.values()))
    for table, section in sections.items():
        (home / f"{table}.toml").write_text(defaults + section)
    environment = local.environment(home) | {"FIRN_TABLES": str(file)}
    own = home / "airflow"
    own.mkdir(exist_ok=True)
    shutil.copy(migrated / "airflow.db", own)
    # The components have to share the secrets in it.
    configured = (migrated / "airflow.cfg").read_text()
    (own / "airflow.cfg").write_text(configured.replace(str(migrated), str(own)))
    return LocalAirflow(environment, lake, home)


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of an Airflow without a DAG: making its metadata database takes fifteen seconds, so others copy it."""
    home = tmp_path_factory.mktemp("migrated")
    done = without_database(home).python("-m", "airflow", "db", "migrate")
    assert done.returncode == 0, done.stderr
    return home / "airflow"


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory, migrated: Path) -> LocalAirflow:
    """The one that the tests of DAGs share, with TABLES."""
    tables = {table: SETTINGS.get(table, "") for table in TABLES}
    return make(tmp_path_factory.mktemp("airflow"), tables, migrated)


def tear_manifest(lake: Lake, table: str) -> None:
    """Cut the only manifest of ``table`` off in the middle, as a store does that lost the rest of it."""
    loaded = lake.table(table)
    snapshot = loaded.current_snapshot()
    assert snapshot is not None
    (manifest,) = snapshot.manifests(loaded.io)
    path = on_disk(manifest.manifest_path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
