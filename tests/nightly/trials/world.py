"""The world of one trial: a catalog, a store, a clock, and everybody's hands on one table."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import AddSnapshotUpdate

from tests.nightly.trials import product as firn
from tests.nightly.trials.catalog import TrialCatalog, TrialRequest
from tests.nightly.trials.checker import Checker
from tests.nightly.trials.faults import NOTHING, Script
from tests.nightly.trials.gate import Gate, Held
from tests.nightly.trials.lines import Effect, appends
from tests.nightly.trials.product import TOPIC, appending, landing
from tests.nightly.trials.records import Record
from tests.nightly.trials.store import Store
from tests.support import faults
from tests.support.faults import Request, properties_of

T = TypeVar("T")

MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
NOW: Final = 1_800_000_000_000
"""When every trial begins, epoch milliseconds."""
TABLE: Final = "shop.orders"
BETWEEN: Final = 20_000
"""Time between two commits, milliseconds: a table on which others commit faster makes Firn wait."""
AGE: Final = 3 * DAY
"""The age that a file without a reference needs to go."""
PROPERTIES: Final[Mapping[str, str]] = {
    "firn.merge.segments": "2",
    "firn.clean.segments": "2",
    "firn.min.cleanable.dirty.ratio": "0.5",
    "firn.clean.tail.fraction": "0.5",
    "firn.delete.retention.ms": str(HOUR),
    "firn.job.max.age.ms": str(4 * HOUR),
    "history.expire.max-snapshot-age-ms": str(6 * HOUR),
    "commit.retry.min-wait-ms": "1",
    "commit.retry.max-wait-ms": "2",
}
"""Each lane has its turn however little there is, and hours are enough for whatever has an age."""


@dataclass
class _Others(faults.Gate):
    """The gate of everybody else: all passes."""

    world: "World"

    def commit(self, request: Request) -> CommitTableResponse:
        return self.world.dated(request).deliver()

    def applied(self, request: Request, response: CommitTableResponse) -> None:
        self.world.changed(request, response)


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
    batches: int = 0
    offsets: Counter[int] = field(default_factory=Counter)
    left_head: int | None = None
    """Main's snapshot before the last rollback."""
    tags: int = 0
    acting: Callable[[], object] = lambda: None
    """What another actor does right before a request of Firn's arrives."""

    def __post_init__(self) -> None:
        self.store = Store(lambda: self.now, lambda: self._front.gate)
        self.checker = Checker(self)
        self._gate: Gate | None = None
        self.past: list[str] = []
        """Every metadata file that the catalog has named."""
        self.firn = firn.Product("lake", self.properties(), self.folder / "home", lambda: self.now + self.skew)
        assert isinstance(self.firn.catalog, TrialCatalog)
        self._front: TrialCatalog = self.firn.catalog
        self._front.by_firn = True
        self.others = self._of_others(load_catalog("lake", **self.properties()))
        self._front.gate = _Others(self)

    def properties(self) -> dict[str, str]:
        return properties_of(self.store, store=True) | {
            "py-catalog-impl": f"{TrialCatalog.__module__}.{TrialCatalog.__name__}",
            "uri": f"sqlite:///{self.folder}/lake.db",
            "warehouse": f"file://{self.folder / 'warehouse'}",
        }

    def others_lake(self) -> tuple[firn.Lake, TrialCatalog]:
        """The catalog of Firn's as helpers of other writers take it, and its object."""
        lake = firn.Lake("lake", self.properties(), self.folder / "others")
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
        assert isinstance(request, TrialRequest)
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

    def in_turn(self, choices: Sequence[T]) -> T:
        """The one whose turn it is with this seed."""
        return choices[self.seed % len(choices)]

    def happened(self, injection: str) -> None:
        """Tell of an injection that took effect."""
        self.log.append(f"  {injection}")

    # Steps.

    def step(
        self, name: str, action: Callable[[], firn.Ended], script: Script = NOTHING, effect: Effect | None = None
    ) -> firn.Ended:
        """A step of Firn with the faults of ``script``, and the checker's look after it."""
        self.log.append(name)
        former = self._gate, self._front.gate, self._front.effect, self.checker.step
        self._gate = self._front.gate = gate = Gate(self, script)
        self._front.effect, self.checker.step = effect, name
        try:
            ended = action()
        finally:
            # One that was at work already goes on.
            self._gate, self._front.gate, self._front.effect, self.checker.step = former
        self.held += gate.held
        told = " ".join([ended.how, ended.said.partition("\n")[0], *ended.blocked])
        self.log.append(f"  {told}")
        self.checker.look(name, ended, gate.fate)
        return ended

    @property
    def fate(self) -> str:
        """The fate that a request of the step at work has met."""
        return self._gate.fate if self._gate else ""

    def run(self, script: Script = NOTHING, **how: Any) -> firn.Ended:
        return self.step("run", lambda: self.firn.run(TABLE, **how), script)

    def maintain(self, script: Script = NOTHING) -> firn.Ended:
        ended = self.step("maintain", lambda: self.firn.maintain(TABLE), script)
        self.event("expiry")
        return ended

    def land(self, records: tuple[Record, ...], script: Script = NOTHING) -> firn.Ended:
        """Firn lands a file of ``records``."""
        path = self.folder / f"landing-{self.batches}.parquet"
        pq.write_table(landing(records), path)
        self.batches += 1
        ended = self.step("land", lambda: self.firn.land(TABLE, path), script, appends(self.batches, records))
        self.checker.landed(self.batches, ended, answered=script.is_passing)
        return ended

    def late(self) -> None:
        """Run `firn config set TABLE offsets.restart=late --topic TOPIC`."""
        self.step("late", lambda: self.firn.late(TABLE, TOPIC))

    def ask(self, keys: list[bytes], within_ms: int, script: Script = NOTHING) -> firn.Ended:
        """Request that ``keys`` are erased."""
        return self.step("ask", lambda: self.firn.ask(TABLE, keys, within_ms), script)

    def append(self, records: tuple[Record, ...]) -> None:
        """Another writer appends ``records``."""
        self.batches += 1
        self.log.append(f"append {len(records)} records")
        self.by_others(appends(self.batches, records), lambda table: table.append(appending(records)))

    def by_others(
        self,
        effect: Effect,
        change: Callable[[Table], object],
        catalog: TrialCatalog | None = None,
    ) -> None:
        """Change the table with another writer's hands; ``effect`` says what that does to main."""
        catalog = catalog or self.others
        catalog.effect = effect
        try:
            change(catalog.load_table(TABLE))
        finally:
            catalog.effect = None

    def records(self, least: int = 1, most: int = 5, age_ms: int = HOUR) -> tuple[Record, ...]:
        """New records at the ends of the partitions."""
        batch = []
        for _ in range(self.random.randint(least, most)):
            partition = self.random.randint(0, 1)
            key = None if self.random.random() < 0.06 else self.random.choice((b"a", b"b", b"c", b"d", b""))
            value = None if key is not None and self.random.random() < 0.25 else self.random.randbytes(4)
            batch.append(Record(partition, self.offsets[partition], key, value, self.now - age_ms))
            self.offsets[partition] += 1
        return tuple(batch)

    def table(self) -> Table:
        return self.others.load_table(TABLE)
