"""Compactors that clean a table again and again; drivers die, the catalog fails, and other tools maintain the table."""

import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from threading import Event
from typing import TYPE_CHECKING, NamedTuple

from pyspark.errors import PySparkException

from firnlake import clock
from firnlake.engine.local import LocalEngine
from firnlake.errors import FirnError
from firnlake.iceberg.catalog import Lake
from firnlake.job.lane import Lane
from firnlake.run import LaneRun, run
from tests.nightly.crowd.processes import ENDS_WITHIN, forked
from tests.support.faults import Ending, Forgetful, Gate, Repeating, through
from tests.support.machine import judging_late

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from pyspark.sql import SparkSession

FAULTY = 0.5
"""Share of cleanings that something is to go wrong in."""
SHORT = 0.1
"""Share of cleanings whose process is killed within ``SHORT_SECONDS``, if it has not ended before."""
SHORT_SECONDS = 10.0
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


class Ended(NamedTuple):
    """The end of a process: killed, or with its account; ``crashed`` is an error that no user must ever see."""

    killed: bool = False
    publications: int = 0
    retries: int = 0
    failures: tuple[str, ...] = ()
    """Plans that failed: kind of error, title, message."""
    refused: str = ""
    """The error that ended the whole run."""
    crashed: str = ""


class Cleaning(NamedTuple):
    """`firn run`, on a machine whose clock is ``ahead_ms`` ahead."""

    lake: Lake
    table: str
    lanes: tuple[Lane, ...] = tuple(Lane)
    force: bool = False
    ahead_ms: int = 0
    fault: Gate | None = None

    def driven(self, seconds: float = ENDS_WITHIN) -> Ended:
        """Its end in a process of its own, which is killed after ``seconds``."""
        context = forked()
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
    done: list[LaneRun] = []
    refused = crashed = ""
    try:
        with judging_late():
            done.extend(run(lake, cleaning.table, now_ms, lambda _: LocalEngine(2), cleaning.lanes, cleaning.force))
    except FirnError as error:
        refused = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  # whatever it is, the soak says so
        crashed = traceback.format_exc()
    attempts = [one.attempts for lane in done for one in lane.publications]
    failures = [(title, error) for lane in done for title, error in lane.failures.items()]
    told = tuple(f"{type(error).__name__}: {title}: {error}" for title, error in failures)
    retries = sum(max(0, one - 1) for one in attempts)
    pipe.send(Ended(publications=len(attempts), retries=retries, failures=told, refused=refused, crashed=crashed))


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
        if fault and (ended.killed or ended.failures or ended.refused):
            self.faults.append(str(fault))

    def _maintain(self) -> None:
        """Maintenance by the owners of tables with their Spark; the loser of a race does it the next time."""
        procedure = self.random.choice([REWRITE, EXPIRE, EXPIRE])
        name = procedure.partition("(")[0]
        try:
            self.spark.sql(f"CALL lake.system.{procedure.format(table=self.table)}").collect()
        except PySparkException:
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
