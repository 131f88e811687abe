"""One table on a real catalog and store, `firn` processes that work on it, and a plain model of what it must show."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pyarrow.parquet as pq
from pyarrow.fs import FileSelector
from pyiceberg.table import Table

from firnlake.door import OpenCatalog
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import job_folder, job_of, store
from firnlake.job.stage import stages_of
from firnlake.table.history import CommitSummary
from infra.environment import CHECKOUT, SOURCES
from infra.stack.stack import Stack
from tests.support.commands import until
from tests.support.lakes import held
from tests.support.records import Record, rows_of

PROPERTIES = {
    "firn.merge.segments": "4",
    "firn.clean.segments": "2",
    # Whatever can be cleaned is: after the last run one record per key is left.
    "firn.min.cleanable.dirty.ratio": "0",
    "firn.min.dirty.bytes": "0",
}
PARTITIONS = 2
DONE_WITHIN = 300  # seconds

Records = dict[tuple[int, int], tuple[bytes | None, bytes | None]]
"""Key and value by partition and offset."""


@dataclass
class Workload:
    """``landed`` is the model: key and value of every record that an appender has committed."""

    stack: Stack
    catalog: str
    table: str
    home: Path
    engine: str = "local"
    master: str = "local[2]"
    landed: Records = field(default_factory=dict)
    ends: Counter[int] = field(default_factory=Counter)
    said: list[str] = field(default_factory=list)
    """The output of ``firn``, and the command lines of its processes."""

    @cached_property
    def lake(self) -> Lake:
        return self.stack.lake(self.catalog, self.home)

    def loaded(self) -> Table:
        """The table as it is now."""
        return self.lake.table(self.table)

    def create(self) -> "Workload":
        OpenCatalog(self.lake).table(self.table).create(PROPERTIES)
        return self

    def land(self, batches: int, keys: int = 20) -> None:
        """Land so many segments per partition, in one commit each; every seventh deletes, one has no key."""
        for _ in range(batches):
            batch = [self._next(partition, step, keys) for partition in range(PARTITIONS) for step in range(keys)]
            path = self.home / "batch.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows_of(batch), path)
            self.landed |= {(one.partition, one.offset): (one.key, one.value) for one in batch}
            OpenCatalog(self.lake).table(self.table).land(path)

    def _next(self, partition: int, step: int, keys: int) -> Record:
        offset = self.ends[partition]
        self.ends[partition] += 1
        key = None if (partition, offset) == (0, 3) else b"k%d" % ((step * 7 + offset) % (2 * keys))
        value = None if step % 7 == 0 and key else b"%d of %d" % (offset, partition)
        return Record(offset, key, value, partition, 1_700_000_000_000 + offset)

    @contextmanager
    def appending(self) -> Iterator[None]:
        """Land without pause until the block ends; an appender that fails fails the block."""
        stop = threading.Event()

        def append() -> None:
            while not stop.is_set():
                self.land(1)

        with ThreadPoolExecutor(1) as pool:
            appender = pool.submit(append)
            try:
                yield
            finally:
                stop.set()
            appender.result()

    def environment(self) -> dict[str, str]:
        """PyIceberg's and Spark's own configuration, and nothing on a command line; no jar of Iceberg's anywhere."""
        jars = ("FIRN_JARS", "SPARK_DIST_CLASSPATH")
        own = {name: value for name, value in self.stack.environment(self.catalog).items() if name not in jars}
        return own | {
            "FIRN_HOME": str(self.home),
            "FIRN_ENGINE": self.engine,
            "FIRN_SPARK_MASTER": self.master,
            "SPARK_CONF_DIR": str(self._spark_configuration()),
            # Workers of the cluster are processes of this machine: this Python has what they need.
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": SOURCES,
        }

    @contextmanager
    def firn(self, *arguments: str) -> Iterator["Running"]:
        """A running ``firn`` in a process group of its own, which is gone when the block ends."""
        process = subprocess.Popen(
            [sys.executable, "-m", "firnlake", *arguments],
            env=self.environment(),
            cwd=CHECKOUT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        running = Running(process, self)
        try:
            yield running
        finally:
            running.kill()

    def run(self, *options: str) -> None:
        """``firn run`` to its end, which has to be a good one."""
        with self.firn("run", self.table, *options) as running:
            assert running.ended() == 0, running.output

    def published(self) -> int:
        """Number of Firn's commits in the table."""
        snapshots = self.loaded().metadata.snapshots
        return sum(CommitSummary.of(snapshot) is not None for snapshot in snapshots)

    def staged_files(self) -> list[str]:
        """Data files that jobs have written, published or not."""
        return [path for path in self.files() if "/data/" in path and job_of(path) is not None]

    def files(self) -> list[str]:
        """Every object below the table's location."""
        table = self.loaded()
        files, folder = store(table, table.location())
        found = files.get_file_info(FileSelector(folder, recursive=True, allow_not_found=True))
        return [info.path for info in found if info.is_file]

    def leave_behind(self) -> str:
        """The remains of a writer that outlives its job: a data file in the store that nothing refers to; its path."""
        table = self.loaded()
        files, folder = store(table, job_folder(table, "0" * 16))
        path = f"{folder}/stray.parquet"
        with files.open_output_stream(path) as stream:
            stream.write(b"PAR1")
        return path

    def check(self) -> None:
        """Readers see nothing but what was landed, no offset twice, and the newest record of each key (C1 to C3)."""
        seen = self.seen()
        assert {place: self.landed.get(place) for place in seen} == seen
        assert _newest(seen) == _newest(self.landed)

    def check_clean(self) -> None:
        """Nothing but the newest record of each key is left, and no file that nobody refers to (C24, C25)."""
        self.check()
        seen = self.seen()
        ends = {(partition, end - 1) for partition, end in self.ends.items()}
        assert set(seen) == set(_newest(self.landed).values()) | ends
        assert stages_of(self.lake, self.table) == []
        assert [path for path in self.files() if "/jobs/" in path] == []
        there = {Path(path).name for path in self.files() if path.endswith(".parquet")}
        assert there == self._referenced(), there ^ self._referenced()

    def leaks(self) -> list[str]:
        """Places that show a credential: stored files, logs, output, command lines."""
        secrets = [secret.encode() for secret in self.stack.settings.secrets]
        stored = [path for root in (self.home, self.stack.folder / "objects") for path in root.rglob("*")]
        logged = [*self.stack.folder.glob("*.log"), *self.stack.folder.glob("worker-*/*/*/std*")]
        texts = {str(path): path.read_bytes() for path in (*stored, *logged) if path.is_file()}
        texts |= {f"output {number}": text.encode() for number, text in enumerate(self.said)}
        # Each kind was looked at: else nothing would be found in it.
        kinds = ("metadata.json", "/reports/", "rest.log", "output", *(["/events/"] if self.engine == "spark" else []))
        for kind in kinds:
            assert [name for name in texts if kind in name], kind
        if self.engine == "spark":
            assert [name for name, text in texts.items() if name.startswith("output") and b"org.apache.spark" in text]
        return [name for name, text in texts.items() if any(secret in text for secret in secrets)]

    def seen(self) -> Records:
        """Every record that a reader sees; no place may occur twice."""
        rows = self.loaded().scan().to_arrow().to_pylist()
        found = {(row["partition"], row["offset"]): (row["key"], row["value"]) for row in rows}
        assert len(found) == len(rows)
        return found

    def _referenced(self) -> set[str]:
        """Names of all data files that a snapshot of any branch holds."""
        return {Path(path).name for path in held(self.loaded())}

    def _spark_configuration(self) -> Path:
        """Spark's own configuration file: an event log, in which nothing secret may be."""
        folder = self.home / "spark"
        (folder / "events").mkdir(parents=True, exist_ok=True)
        settings = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": f"file://{folder / 'events'}",
            "spark.driver.host": "127.0.0.1",
            "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        }
        (folder / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        return folder


@dataclass
class Running:
    """A ``firn`` process and all that it has started."""

    process: "subprocess.Popen[str]"
    workload: Workload
    output: str = ""

    def ended(self) -> int:
        """Its exit code, waited for."""
        self.output += self.process.communicate(timeout=DONE_WITHIN)[0]
        self.workload.said.append(self.output)
        return self.process.returncode

    def kill(self) -> None:
        """SIGKILL to the process and its JVM, unless they ended."""
        if self.process.poll() is None:
            self.note_command_lines()
            os.killpg(self.process.pid, signal.SIGKILL)
            self.ended()

    def wait_until(self, happened: Callable[[], object]) -> None:
        """Return once something happened; the process must not end before."""
        running = until(happened, DONE_WITHIN, alive=lambda: self.process.poll() is None)
        assert running, f"firn ended first:\n{self.process.communicate()[0]}"

    def note_command_lines(self) -> None:
        """Keep what every user of the machine can read of the processes."""
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if os.getpgid(int(folder.name)) == self.process.pid:
                    self.workload.said.append((folder / "cmdline").read_text().replace("\0", " "))
            except (ProcessLookupError, FileNotFoundError):
                continue  # ended while we looked


def _newest(found: Records) -> dict[tuple[int, bytes], tuple[int, int]]:
    """Place of the newest record of each key of a partition."""
    return {(place[0], key): place for place, (key, _) in sorted(found.items()) if key is not None}
