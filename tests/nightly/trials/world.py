"""The world of one trial: a catalog, a store, a clock, Firn, and everybody's hands on one table."""

import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest.mock import patch

import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import AddSnapshotUpdate

import firnlake
from firnlake.door import MaintainedTable, OpenCatalog
from firnlake.engine.engine import LocalEngine
from firnlake.errors import FirnError
from firnlake.table.settings import change
from tests.nightly.trials.checker import Checker
from tests.nightly.trials.gate import NOTHING, Gate, Held, Script, Store, TrialCatalog
from tests.nightly.trials.model import Effect, appends, nothing
from tests.support import faults
from tests.support.faults import Killed, Request, properties_of
from tests.support.records import DAY, LOW_THRESHOLDS, NOW, TOPIC, Record, rows_of
from tests.support.topics import foreign_rows

HOUR: Final = 3_600_000
TABLE: Final = "shop.orders"
BETWEEN: Final = 20_000
"""Time between two commits, milliseconds: a table on which others commit faster makes Firn wait."""
AGE: Final = 3 * DAY
"""The age that a file without a reference needs to go."""
PROPERTIES: Final[Mapping[str, str]] = LOW_THRESHOLDS | {
    "firn.delete.retention.ms": str(HOUR),
    "firn.job.max.age.ms": str(4 * HOUR),
    "history.expire.max-snapshot-age-ms": str(6 * HOUR),
    "commit.retry.min-wait-ms": "1",
    "commit.retry.max-wait-ms": "2",
}
"""Each lane has its turn however little there is, and hours are enough for whatever has an age."""
_ENDS: Final = {1: "refused", 3: "conflict", 4: "unavailable", 5: "unknown"}
"""The kinds of errors, by exit code."""


class _Machine:
    """The clock of the machine that Firn runs on, for what no argument tells."""

    now: Callable[[], int] = staticmethod(lambda: NOW)


@contextmanager
def one_by_one() -> Iterator[None]:
    """Within, Firn's machine shows the time of the trial, and deletes files one by one: a seed does it all again."""
    with patch("firnlake.clock.now_ms", lambda: _Machine.now()), patch("firnlake.iceberg.files.WORKERS", 1):
        yield


@dataclass(frozen=True)
class Ended:
    """How a step ended.

    ``how``: done, refused, conflict, unavailable, unknown, crashed or killed.
    """

    how: str
    said: str = ""
    """The error's message; of a crash its class and last lines."""
    blocked: tuple[str, ...] = ()
    """What a run or maintenance could not do."""


def _ended(step: Callable[[], object]) -> Ended:
    """The end of a step; a list that it returns is what it could not do."""
    try:
        found = step()
        return Ended("done", blocked=tuple(found) if isinstance(found, list) else ())
    except FirnError as error:
        return Ended(_ENDS[error.exit_code], str(error))
    except Killed:
        return Ended("killed")
    except Exception as error:  # noqa: BLE001  # whatever it is, the checker hears of it
        last = "".join(traceback.format_tb(error.__traceback__)[-3:])
        return Ended("crashed", f"{type(error).__name__}: {error}\n{last}")


@dataclass
class _Others(faults.Gate):
    """The gate of everybody else: all passes."""

    world: "World"

    def commit(self, request: Request) -> CommitTableResponse:
        slow, self.world.slow = self.world.slow, None
        if slow:
            slow()
        return self.world.dated(request).deliver()

    def applied(self, request: Request, response: CommitTableResponse) -> None:
        self.world.changed(request, response)


@dataclass
class _Elsewhere(_Others):
    """The gate of a second catalog, of whose commits the first one knows nothing."""

    def applied(self, request: Request, response: CommitTableResponse) -> None:  # noqa: ARG002  # others look at it
        self.world.checker.elsewhere = response.metadata_location


@dataclass
class World:
    """Everything that a seed's steps share; each step is told in ``log``."""

    random: Random
    folder: Path
    seed: int
    now: int = NOW
    skew: int = 0
    """By how much Firn's machine is ahead of the store, milliseconds."""
    log: list[str] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    past: list[str] = field(default_factory=list)
    """Every metadata file that the catalog has named."""
    batches: int = 0
    offsets: Counter[int] = field(default_factory=Counter)
    left_head: int | None = None
    """Main's snapshot before the last rollback."""
    tags: int = 0
    acting: Callable[[], object] = lambda: None
    """What another actor does right before a request of Firn's arrives."""

    slow: Callable[[], object] | None = None
    """What happens between the next writing of another writer's files and its commit."""

    def __post_init__(self) -> None:
        self.store = Store(lambda: self.now, lambda: self._front.gate)
        self.checker = Checker(self)
        self._firn = self._open("home")
        _Machine.now = self._firn.now
        self._front = self._of_others(self._firn.lake.catalog)
        self._front.by_firn = True
        self.others = self._of_others(load_catalog("lake", **self._properties()))

    def _open(self, home: str) -> OpenCatalog:
        now, properties = (lambda: self.now + self.skew), self._properties()
        return firnlake.open("lake", now=now, home=self.folder / home, engine=LocalEngine(1), properties=properties)

    @property
    def firn(self) -> MaintainedTable:
        """The table through Firn's door."""
        return self._firn.table(TABLE)

    def _properties(self) -> dict[str, str]:
        return properties_of(self.store, store=True) | {
            "py-catalog-impl": f"{TrialCatalog.__module__}.{TrialCatalog.__name__}",
            "uri": f"sqlite:///{self.folder}/lake.db",
            "warehouse": f"file://{self.folder / 'warehouse'}",
        }

    def others_lake(self) -> tuple[Any, TrialCatalog]:
        """The lake as helpers of other writers take it, and its catalog object."""
        lake = self._open("others").lake
        return lake, self._of_others(lake.catalog)

    def _of_others(self, catalog: Catalog) -> TrialCatalog:
        assert isinstance(catalog, TrialCatalog)
        catalog.gate = _Others(self)
        return catalog

    # What gates ask for.

    def dated(self, request: Request) -> Request:
        """The request with the time of its writer's machine."""
        self.now += BETWEEN
        at = self.now + (self.skew if request.catalog is self._front else 0)
        updates = tuple(
            AddSnapshotUpdate(snapshot=one.snapshot.model_copy(update={"timestamp_ms": at}))
            if isinstance(one, AddSnapshotUpdate)
            else one
            for one in request.updates
        )
        return replace(request, updates=updates)

    def changed(self, request: Request, response: CommitTableResponse) -> None:
        """The catalog has applied ``request``."""
        if response.metadata_location not in self.past:
            self.past.append(response.metadata_location)
        self.checker.committed(request, response)
        self.event("commit")

    def event(self, name: str) -> None:
        """Something that requests on their way may have waited for."""
        due = [one for one in self.held if not one.waits_for(name)]
        self.held = [one for one in self.held if one not in due]
        for one in due:
            self.arrive(one)

    def arrive(self, held: Held) -> None:
        """A request arrives at last; nobody hears of what becomes of it."""
        self.log.append(f"a request arrives, {held.fate}")
        with suppress(CommitFailedException, ValueError):
            held.request.deliver()

    def happened(self, injection: str) -> None:
        """Tell of an injection that took effect."""
        self.log.append(f"  {injection}")

    # Steps of Firn.

    def step(
        self, name: str, action: Callable[[], object], script: Script = NOTHING, effect: Effect = nothing
    ) -> Ended:
        """A step with the fault of ``script``, and the checker's look after it."""
        self.log.append(name)
        former = self._front.gate, self._front.effect, self.checker.step
        self._front.gate = gate = Gate(self, script)
        self._front.effect, self.checker.step = effect, name
        try:
            ended = _ended(action)
        finally:
            # One that was at work already goes on.
            self._front.gate, self._front.effect, self.checker.step = former
        self.held += gate.held
        told = " ".join([ended.how, ended.said.partition("\n")[0], *ended.blocked])
        self.log.append(f"  {told}")
        self.checker.look(name, ended)
        return ended

    def run(self, script: Script = NOTHING, lanes: Sequence[str] = (), *, force: bool = False) -> Ended:
        def blocked() -> list[str]:
            done = self.firn.run(*lanes, force=force)
            return [f"{title}: {error}" for lane in done for title, error in lane.failures.items()]

        return self.step("run", blocked, script)

    def maintain(self, script: Script = NOTHING) -> Ended:
        def blocked() -> list[str]:
            return [f"{one.name}: {one.reason}" for one in self.firn.maintain() if one.exit_code]

        ended = self.step("maintain", blocked, script)
        self.event("expiry")
        return ended

    def land(self, records: tuple[Record, ...], script: Script = NOTHING) -> None:
        """Firn lands a file of ``records``."""
        path = self.folder / f"landing-{self.batches}.parquet"
        pq.write_table(rows_of(records), path)
        self.batches += 1
        ended = self.step("land", lambda: self.firn.land(path), script, appends(self.batches, records))
        self.checker.landed(self.batches, ended, answered=script.is_passing)

    def late(self) -> None:
        """Run `firn config set TABLE offsets.restart=late --topic TOPIC`."""
        self.step("late", lambda: change(self._firn.lake, TABLE, TOPIC, {"offsets.restart": "late"}))

    def ask(self, key: bytes) -> bool:
        """Request that ``key`` is erased, within four days; True if Firn has acknowledged that."""
        ends = {partition: one.offset + 1 for partition, one in self.checker.line.ends().items()}
        asked = self.step("ask", lambda: self.firn.erase(key, within_ms=4 * DAY)).how == "done"
        if asked:
            self.checker.requested |= {(partition, key): end for partition, end in ends.items()}
        return asked

    # Other writers.

    def append(self, records: tuple[Record, ...]) -> None:
        """Another writer appends ``records``."""
        self.batches += 1
        rows = foreign_rows(rows_of(records))
        self.by_others(f"append {len(rows)} records", lambda table: table.append(rows), appends(self.batches, records))

    def append_elsewhere(self) -> None:
        """An append through a second catalog, in which the table is registered."""
        self.log.append("append in a second catalog")
        catalog = load_catalog("elsewhere", **self._properties() | {"uri": f"sqlite:///{self.folder}/elsewhere.db"})
        self._of_others(catalog).gate = _Elsewhere(self)
        if not self.checker.elsewhere:
            catalog.create_namespace("shop")
            catalog.register_table(TABLE, self.table().metadata_location)
        catalog.load_table(TABLE).append(foreign_rows(rows_of([Record(self.batches, b"a", b"elsewhere", 0, self.now)])))

    def by_others(
        self,
        what: str,
        change: Callable[[Table], object],
        effect: Effect = nothing,
        catalog: TrialCatalog | None = None,
    ) -> None:
        """Change the table with another writer's hands; ``effect`` says what that does to main."""
        self.log.append(what)
        catalog = catalog or self.others
        catalog.effect = effect
        try:
            change(catalog.load_table(TABLE))
        finally:
            catalog.effect = nothing

    def records(self, least: int = 1, most: int = 5) -> tuple[Record, ...]:
        """New records at the ends of the partitions."""
        batch = []
        for _ in range(self.random.randint(least, most)):
            partition = self.random.randint(0, 1)
            key = None if self.random.random() < 0.06 else self.random.choice((b"a", b"b", b"c", b"d", b""))
            value = None if key is not None and self.random.random() < 0.25 else self.random.randbytes(4)
            batch.append(Record(self.offsets[partition], key, value, partition, self.now - HOUR))
            self.offsets[partition] += 1
        return tuple(batch)

    def table(self) -> Table:
        return self.others.load_table(TABLE)
