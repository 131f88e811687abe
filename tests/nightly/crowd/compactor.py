"""A compactor in a process of its own that cleans a table again and again; drivers die, catalog and store fail."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from queue import Empty
from random import Random
from typing import TYPE_CHECKING

import psutil

from firnlake import clock
from firnlake.iceberg.catalog import Lake
from firnlake.job.lane import Lane
from firnlake.plan.read_states import Scope
from firnlake.table.topic_partition import TopicPartition
from infra.foreign.session import small_session
from tests.nightly.crowd.child import Child, Ended, clean
from tests.nightly.crowd.processes import forked
from tests.nightly.crowd.workplace import Choice, Workplace
from tests.support.faults import Ending, Forgetful, Gate, Repeating, through

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Event

FAULTY = 0.5
"""Share of cleanings that something is to go wrong in."""
FOREIGN = 0.1
"""Share of turns that go to other tools' maintenance."""
WRITTEN = ("data", "plans", "staged manifest", "result", "verdicts", "list", "manifest", "metadata")
FAULTS: Sequence[Callable[[Random], Gate]] = (
    lambda random: Ending("commit", random.randint(1, 3), after=random.random() < 0.5),
    lambda random: Ending(f"write {random.choice(WRITTEN)}", random.randint(1, 3), half=random.random() < 0.5),
    lambda random: Forgetful(random.choice(["yes", "no"]), random.choice(["", "sql", "busy"])),
    lambda _: Repeating(),
)
"""A death, an answer that is lost, and a commit that is delivered twice."""
REWRITE = "rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))"
EXPIRE = "expire_snapshots(table => '{table}', older_than => timestamp '2999-01-01', retain_last => 5)"


@dataclass(frozen=True)
class Work:
    """The work of a compactor: its own topic partitions (none: all), and true if faults are injected."""

    table: str
    seed: int
    folder: Path
    partitions: Sequence[int] = ()
    faults: bool = False
    choice: Choice = Choice.LOCAL


@dataclass
class Cleaned:
    """The effect of some cleanings."""

    ended: list[Ended] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    foreign: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Cleaned") -> None:
        self.ended += other.ended
        self.faults += other.faults
        self.foreign += other.foreign


@dataclass
class Compactor:
    """One that is under way."""

    lake: Lake
    work: Work
    _stop: "Event"
    _results: "Queue[Cleaned]"
    _process: "BaseProcess"

    @classmethod
    def start(cls, lake: Lake, work: Work) -> "Compactor":
        context = forked()
        stop, results = context.Event(), context.Queue()
        process = context.Process(target=_compact, args=(replace(lake), work, stop, results))
        process.start()
        return cls(lake, work, stop, results, process)

    @property
    def process(self) -> psutil.Process:
        """Its process, a parent of those that clean."""
        return psutil.Process(self._process.pid)

    @property
    def expires(self) -> bool:
        """True at ``expire_snapshots``: killed between that commit and its deletions, Iceberg leaves files
        that nobody holds. `firn maintain` deletes those, and they say nothing about Firn's own."""
        return _expiring(self.work, self._process.pid).exists()

    def kill(self) -> None:
        """SIGKILL to it, its driver and its JVM, all at once."""
        with suppress(psutil.NoSuchProcess):
            own = psutil.Process(self._process.pid)
            every = [*own.children(recursive=True), own]
            for process in every:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(every[:-1])
        self._process.join()

    def news(self) -> Cleaned:
        """Its work since it was asked last."""
        found = Cleaned()
        with suppress(Empty):
            while True:
                found.add(self._results.get_nowait())
        return found

    def stop(self) -> Cleaned:
        """Let it end what it is at."""
        self._stop.set()
        found = Cleaned()
        while self._process.is_alive():
            found.add(self.news())
            time.sleep(0.05)
        found.add(self.news())
        self._process.join()
        return found


@contextmanager
def compacting(lake: Lake, works: Sequence[Work]) -> Iterator[list[Compactor]]:
    """Compactors at work; the list is the caller's to change."""
    compactors = [Compactor.start(lake, work) for work in works]
    try:
        yield compactors
    finally:
        for compactor in compactors:
            compactor.kill()


def _compact(lake: Lake, work: Work, stop: "Event", results: "Queue[Cleaned]") -> None:
    place = Workplace(partial(small_session, lake, "firn faults"), work.choice)
    place.prepare()
    # Not the same again after a restart: the process id is part of it.
    random = Random(f"{work.seed} {os.getpid()}")  # noqa: S311  # a seed is what it is for
    while not stop.is_set():
        if work.faults and random.random() < FOREIGN:
            results.put(_maintained(place, work, random))
        else:
            results.put(_cleaned(lake, place, work, random))
    place.close()


def _cleaned(lake: Lake, place: Workplace, work: Work, random: Random) -> Cleaned:
    fault = random.choice(FAULTS)(random) if work.faults and random.random() < FAULTY else None
    scope = Scope(partitions=tuple(TopicPartition("orders", partition) for partition in work.partitions))
    own = through(lake, fault) if fault else lake
    child = Child.start(partial(clean, own, work.table, place.engine, clock.now_ms(), tuple(Lane), scope=scope))
    ended = child.end()
    return Cleaned([ended], [str(fault)] if fault and (ended.killed or ended.failures or ended.refused) else [])


def _maintained(place: Workplace, work: Work, random: Random) -> Cleaned:
    """Maintenance by the owners of tables with their Spark; the loser of a race does it the next time."""
    from pyspark.errors import PySparkException

    procedure = random.choice([REWRITE, EXPIRE, EXPIRE])
    name = procedure.partition("(")[0]
    expiring = _expiring(work, os.getpid())
    if procedure == EXPIRE:
        expiring.parent.mkdir(parents=True, exist_ok=True)
        expiring.touch()
    try:
        place.spark.sql(f"CALL lake.system.{procedure.format(table=work.table)}").collect()
    except PySparkException:
        return Cleaned(foreign=Counter([f"{name} lost"]))
    finally:
        expiring.unlink(missing_ok=True)
    return Cleaned(foreign=Counter([name]))


def _expiring(work: Work, pid: int | None) -> Path:
    """There while the compactor with that process id expires snapshots."""
    return work.folder / f"expiring-{pid}"
