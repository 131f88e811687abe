"""The crew of a soak: appenders, readers and compactors of one table, most of them processes of their own."""

import logging
import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.context import ForkServerContext
from multiprocessing.synchronize import Event as EventOfProcesses
from random import Random
from threading import Event
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from py4j.protocol import Py4JJavaError
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyspark.errors import PySparkException
from sqlalchemy.exc import OperationalError

from firnlake import clock
from firnlake.door import OpenCatalog
from firnlake.engine.engine import LocalEngine
from firnlake.errors import FirnError
from firnlake.iceberg.catalog import Lake
from tests.support.faults import Ending, Forgetful, Gate, Repeating, through
from tests.support.machine import judging_late
from tests.support.records import NOW, Record, rows_of
from tests.support.topics import foreign_rows, record_of

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.queues import Queue

    from pyspark.sql import SparkSession

T = TypeVar("T")

PRELOADED = (
    "duckdb",
    "firnlake_expectations.checkpoint",
    "firnlake.compact.compact",
    "firnlake.publish.publish",
    "firnlake.validate.validate",
)
ENDS_WITHIN = 600
"""Seconds; a process that takes longer hangs, and so would whoever waits for it."""


def _forked() -> ForkServerContext:
    """Processes that share nothing with this one, forked by a server that has imported everything: ten that import it
    all take minutes."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(list(PRELOADED))
    return found


@contextmanager
def working(work: Callable[..., T], arguments: Iterable[tuple[object, ...]]) -> Iterator[Callable[[], list[T]]]:
    """Processes that do ``work``, each with arguments of its own and an event at which it ends.

    What is yielded tells them to end, and returns what they have returned.
    """
    context = _forked()
    stop, results = context.Event(), context.Queue()
    processes = [context.Process(target=_work, args=(results, work, *one, stop), daemon=True) for one in arguments]
    for process in processes:
        process.start()

    def ended() -> list[T]:
        stop.set()
        return [results.get(timeout=ENDS_WITHIN) for _ in processes]

    try:
        yield ended
    finally:
        for process in processes:
            process.kill()
            process.join()


def _work(results: "Queue[T]", work: Callable[..., T], *arguments: object) -> None:
    results.put(work(*arguments))


# Appenders: each has a topic partition of its own, and its records follow from a seed.

KEYS = 40
BATCH = 10
"""At most so many records a commit."""
PAUSE_SECONDS = 5.0
"""Between two commits: with less, appenders and readers leave two cores no time to clean."""


class Appended(NamedTuple):
    """The account of one appender: all offsets below ``log_end`` of its partition are in the table."""

    partition: int
    log_end: int
    commits: int
    refused: int
    """Commits that the catalog refused though PyIceberg had tried again and again."""


def record(seed: int, partition: int, offset: int) -> Record:
    """The record that is at ``offset``, whoever asks."""
    random = Random(f"{seed} {partition} {offset}")  # noqa: S311  # a seed is what it is for
    key = None if random.random() < 0.02 else b"k%d" % random.randrange(KEYS)
    value = None if key is not None and random.random() < 0.15 else random.randbytes(20)
    return Record(offset, key, value, partition, NOW - 1_000_000 + offset)


def append(lake: Lake, table: str, partition: int, seed: int, stop: EventOfProcesses) -> Appended:
    """Append until ``stop``."""
    # PyIceberg warns of each try that loses a race: hundreds of lines among the figures.
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    random = Random(f"{seed} {partition}")  # noqa: S311  # a seed is what it is for
    log_end = commits = refused = 0
    while not stop.is_set():
        batch = [record(seed, partition, log_end + one) for one in range(random.randint(1, BATCH))]
        try:
            lake.table(table).append(foreign_rows(rows_of(batch)))
        except (CommitFailedException, OperationalError):
            refused += 1
            # The log end is never removed (C4).
            offsets = lake.table(table).scan(f"partition == {partition}", selected_fields=("offset",)).to_arrow()
            log_end = max(offsets["offset"].to_pylist(), default=-1) + 1
            continue
        log_end += len(batch)
        commits += 1
        stop.wait(PAUSE_SECONDS)
    return Appended(partition, log_end, commits, refused)


# Readers: no key goes back to an older value, or vanishes and comes back.

LOOK_SECONDS = 0.05
LOOKS = 5
"""So often is a table loaded again whose files are gone: somebody may expire what was just loaded."""

View = Mapping[tuple[int, bytes], tuple[int, bool]]
"""The newest offset of each key of a partition, and true if that is a tombstone."""


@dataclass
class Looks:
    """What a reader has seen, and what of it no reader may see."""

    views: int = 0
    violations: list[str] = field(default_factory=list)
    _last: View = field(default_factory=dict)
    _gone: dict[tuple[int, bytes], int] = field(default_factory=dict)

    def see(self, seen: View) -> None:
        """The next look."""
        self.views += 1
        for key, (offset, tombstone) in self._last.items():
            if key not in seen:
                self._gone[key] = offset
                if not tombstone:
                    self.violations.append(f"{key} was at offset {offset} and is gone")
        for key, (offset, _) in seen.items():
            before = self._last[key][0] if key in self._last else self._gone.get(key, -1)
            if offset < before or (offset == before and key not in self._last):
                self.violations.append(f"{key} was at offset {before} and is at {offset}")
        self._last = seen


def look(lake: Lake, table: str, stop: EventOfProcesses) -> Looks:
    """Look until ``stop``."""
    looks, last = Looks(), 0
    while not stop.wait(LOOK_SECONDS):
        try:
            found = _look(lake, table, last)
        except (OSError, NoSuchTableError) as error:
            looks.violations.append(f"{type(error).__name__}: {error}")
            continue
        if found:
            last, seen = found
            looks.see(seen)
    return looks


def _look(lake: Lake, identifier: str, last: int) -> tuple[int, View] | None:
    for left in reversed(range(LOOKS)):
        table = lake.table(identifier)
        snapshot = table.current_snapshot()
        if snapshot is None or snapshot.snapshot_id == last:
            return None
        try:
            records = sorted(map(record_of, table.scan().to_arrow().to_pylist()), key=lambda record: record.offset)
        except FileNotFoundError:
            if not left:
                raise
            time.sleep(LOOK_SECONDS)
        else:
            view = {(one.partition, one.key): (one.offset, one.value is None) for one in records if one.key is not None}
            return snapshot.snapshot_id, view
    return None


# Compactors: drivers die, the catalog fails, and between cleanings other tools maintain the table.

FAULTY = 0.5
"""Share of cleanings that something is to go wrong in."""
SHORT, SHORT_SECONDS = 0.1, 10.0
"""Share of cleanings whose process is killed within so many seconds, if it has not ended before."""
FOREIGN = 0.1
"""Share of turns that go to other tools' maintenance."""
WRITTEN = ("data", "plans", "change", "verdicts", "list", "manifest", "metadata")
FAULTS: Sequence[Callable[[Random], Gate]] = (
    lambda random: Ending("commit", random.randint(1, 3), after=random.random() < 0.5),
    lambda random: Ending(f"write {random.choice(WRITTEN)}", random.randint(1, 3), half=random.random() < 0.5),
    lambda random: Forgetful(random.choice(["yes", "no"]), random.choice(["", "sql", "busy"])),
    lambda _: Repeating(),
)
"""A death, an answer that is lost, and a commit that is delivered twice."""
REWRITE = "rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))"
EXPIRE = "expire_snapshots(table => '{table}', older_than => timestamp '2999-01-01', retain_last => 5)"


class Ended(NamedTuple):
    """The end of a process: killed, or with its account; ``crashed`` is an error that no user must ever see."""

    killed: bool = False
    publications: int = 0
    failures: tuple[str, ...] = ()
    """Kind of error, plan, message; of the error that ended the whole run, the kind and the message."""
    crashed: str = ""


class Cleaning(NamedTuple):
    """`firn run`, on a machine whose clock is ``ahead_ms`` ahead."""

    lake: Lake
    table: str
    lanes: tuple[str, ...] = ()
    force: bool = False
    ahead_ms: int = 0
    fault: Gate | None = None

    def driven(self, seconds: float = ENDS_WITHIN) -> Ended:
        """Its end in a process of its own, which is killed after ``seconds``."""
        context = _forked()
        ours, theirs = context.Pipe(duplex=False)
        own = self._replace(lake=replace(self.lake))
        process = context.Process(target=_drive, args=(own, theirs), daemon=True)
        process.start()
        theirs.close()
        try:
            if ours.poll(seconds):
                ended: Ended = ours.recv()
                return ended
            return Ended(killed=True) if seconds < ENDS_WITHIN else Ended(crashed="it does not end")
        except EOFError:
            return Ended(killed=True)
        finally:
            process.kill()
            process.join()


def _drive(cleaning: Cleaning, pipe: "Connection[Ended, None]") -> None:
    now_ms, machine = clock.now_ms(), clock.now_ms
    setattr(clock, "now_ms", lambda: machine() + cleaning.ahead_ms)  # noqa: B010  # this process is gone after the work
    lake = through(cleaning.lake, cleaning.fault) if cleaning.fault else cleaning.lake
    table = OpenCatalog(lake, lambda: now_ms, LocalEngine(2)).table(cleaning.table)
    try:
        with judging_late():
            done = table.run(*cleaning.lanes, force=cleaning.force)
        failed = [(title, error) for lane in done for title, error in lane.failures.items()]
        told = tuple(f"{type(error).__name__}: {title}: {error}" for title, error in failed)
        ended = Ended(publications=sum(len(lane.publications) for lane in done), failures=told)
    except FirnError as error:
        ended = Ended(failures=(f"{type(error).__name__}: {error}",))
    except Exception:  # noqa: BLE001  # whatever it is, the soak says so
        ended = Ended(crashed=traceback.format_exc())
    pipe.send(ended)


@dataclass
class Compactor:
    """Cleans, and lets other tools maintain the table, until it is told to stop."""

    lake: Lake
    table: str
    spark: "SparkSession"
    random: Random
    ended: list[Ended] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Those that took effect."""
    foreign: list[str] = field(default_factory=list)

    def work(self, stop: Event) -> None:
        while not stop.is_set():
            if self.random.random() < FOREIGN:
                self._maintain()
            else:
                self._clean()

    def _clean(self) -> None:
        fault = self.random.choice(FAULTS)(self.random) if self.random.random() < FAULTY else None
        seconds = self.random.uniform(0, SHORT_SECONDS) if self.random.random() < SHORT else ENDS_WITHIN
        ended = Cleaning(self.lake, self.table, fault=fault).driven(seconds)
        self.ended.append(ended)
        if fault and (ended.killed or ended.failures):
            self.faults.append(str(fault))

    def _maintain(self) -> None:
        """Maintenance by the owners of tables with their Spark; the loser of a race does it the next time."""
        procedure = self.random.choice([REWRITE, EXPIRE, EXPIRE])
        name = procedure.partition("(")[0]
        try:
            self.spark.sql(f"CALL lake.system.{procedure.format(table=self.table)}").collect()
        except (PySparkException, Py4JJavaError):
            name += " lost"
        self.foreign.append(name)


@contextmanager
def compacting(crew: Sequence[Compactor]) -> Iterator[None]:
    """All of them at work; at its end each ends what it is at."""
    stop = Event()
    with ThreadPoolExecutor(len(crew)) as pool:
        running = [pool.submit(one.work, stop) for one in crew]
        try:
            yield
        finally:
            stop.set()
        for one in running:
            one.result()
