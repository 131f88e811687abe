"""Where something goes wrong: the catalog and the store of a trial, and the gate of a step of Firn. Its script, drawn
from the trial's seed, says which load, request, write or deletion is hit, and how.
"""

import errno
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from pyarrow.fs import FileInfo
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ServerError,
    ServiceUnavailableError,
)
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table
from sqlalchemy.exc import OperationalError

from tests.nightly.trials.model import Effect, nothing
from tests.support import faults
from tests.support.faults import GatedCatalog, Killed, Request

if TYPE_CHECKING:
    from tests.nightly.trials.world import World


class Call(StrEnum):
    """What a process asks of its catalog and its store, and what is counted."""

    LOAD = "load"
    COMMIT = "commit"
    WRITE = "write"
    DELETE = "deletion"


class Fault(StrEnum):
    """What goes wrong at a call."""

    DROPPED = "dropped"
    FAILED = "delivered and failed"
    """Applied, and answered by an error."""
    TWICE = "delivered twice"
    """Applied and sent again; the caller hears of the second delivery alone."""
    AFTER_COMMITS = "held until after commits"
    AFTER_ROLLBACK = "held until after a rollback"
    AFTER_EXPIRY = "held until after an expiry"
    BESIDE = "another actor first"
    """Another writer commits right before it arrives."""
    KILLED = "killed after the commit"
    STALE = "load of the past"
    HEADS = "load of heads only"
    FAILS = "load fails"
    DELETE_FAILS = "delete fails once"
    LIES = "delete says yes and does nothing"
    KILLED_BEFORE = "killed before a delete"
    KILLED_AFTER = "killed after a delete"
    MEANWHILE = "another actor"
    """Another actor does something right before a call."""


HELD: Final = (Fault.AFTER_COMMITS, Fault.AFTER_ROLLBACK, Fault.AFTER_EXPIRY)
AT_COMMIT: Final = (Fault.DROPPED, Fault.FAILED, Fault.TWICE, *HELD, Fault.BESIDE, Fault.KILLED)
AT_LOAD: Final = (Fault.STALE, Fault.HEADS, Fault.FAILS)
AT_DELETION: Final = (Fault.DELETE_FAILS, Fault.LIES, Fault.KILLED_BEFORE, Fault.KILLED_AFTER)


def _broken() -> ConnectionError:
    return ConnectionError("the connection broke")


ANSWERS: Final[Mapping[str, Callable[[], Exception]]] = {
    "CommitFailed": lambda: CommitFailedException("branch main has changed"),
    "CommitStateUnknown": lambda: CommitStateUnknownException("504: gateway timeout"),
    "ServiceUnavailable": lambda: ServiceUnavailableError("503: try again"),
    "ServerError": lambda: ServerError("500: internal error"),
    "BadRequest": lambda: BadRequestError("400: bad request"),
    "ValueError": lambda: ValueError("sequence number is taken"),
    "ConnectionError": _broken,
    "OperationalError": lambda: OperationalError("COMMIT", None, _broken(), connection_invalidated=True),
}
"""The errors that catalogs and their clients answer with, none of which tells whether a commit was applied."""


class Script(NamedTuple):
    """The fault of one step of Firn, at its ``nth`` ``call``, from 1."""

    call: Call | None = None
    nth: int = 0
    fault: Fault | None = None
    answer: str = ""
    """Of a request to commit; empty if its process is killed while it waits for one."""
    commits: int = 0
    """How many commits later a held request arrives, or how many commits ago a load shows the table."""

    @property
    def is_passing(self) -> bool:
        """True if nothing but a single request goes wrong, in a way that the next load of the table tells."""
        return self.fault not in (*AT_LOAD, *AT_DELETION, *HELD, Fault.KILLED)


NOTHING: Final = Script()
DYING: Final = Script(Call.COMMIT, 1, Fault.AFTER_EXPIRY)
"""A process is killed while its first commit is on its way."""


def commit_fault(random: Random, fates: tuple[Fault, ...] = AT_COMMIT) -> Script:
    """A fault at one of the first requests to commit."""
    nth = random.choice((1, 1, 1, 2, 3))
    return Script(Call.COMMIT, nth, random.choice(fates), random.choice(list(ANSWERS)), random.randint(1, 3))


def some_fault(random: Random) -> Script:
    """None, or one of any sort at one of the first calls."""
    draw = random.random()
    if draw < 0.2:
        return NOTHING
    if draw < 0.7:
        return commit_fault(random)
    if draw < 0.85:
        nth = random.choice((1, 1, 2, 3, 4, 6))
        return Script(Call.LOAD, nth, random.choice(AT_LOAD), commits=random.randint(1, 3))
    return Script(Call.DELETE, random.choice((1, 1, 2, 3, 5, 8)), random.choice(AT_DELETION))


def meanwhile(random: Random) -> Script:
    """Another actor at one of the first calls of a kind."""
    call, most = random.choice(((Call.LOAD, 12), (Call.WRITE, 12), (Call.DELETE, 5), (Call.COMMIT, 1)))
    if call is Call.COMMIT:
        return commit_fault(random, (Fault.BESIDE,))
    return Script(call, random.randint(1, most), Fault.MEANWHILE)


@dataclass(frozen=True)
class TrialRequest(Request):
    """A request to commit, with what it does to what main shows."""

    effect: Effect = nothing


class TrialCatalog(GatedCatalog):
    """A catalog object of Firn's, or of somebody else's."""

    by_firn = False
    effect: Effect = staticmethod(nothing)
    """What the request that is made now does to main."""

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        return self.gate.commit(TrialRequest(self, table, tuple(requirements), tuple(updates), self.effect))


class Store(faults.Gate):
    """The local disk with a clock of its own; whoever is at work has a gate that is asked before."""

    def __init__(self, now: Callable[[], int], gate: Callable[[], faults.Gate]) -> None:
        self._now = now
        self._gate = gate
        self._times: dict[str, int] = {}

    def read(self, path: str) -> None:
        self._gate().read(path)

    def write(self, path: str) -> None:
        self._gate().write(path)
        self._times[path] = self._now()

    def delete(self, path: str) -> bool:
        return self._gate().delete(path)

    def dated(self, info: FileInfo) -> FileInfo:
        if not info.is_file:
            return info
        return FileInfo(info.path, info.type, mtime_ns=self.time_of(info.path) * 1_000_000, size=info.size)

    def time_of(self, path: str) -> int:
        """When the file was written, epoch milliseconds; if nobody announced it, when it was first seen."""
        return self._times.setdefault(path, self._now())


@dataclass
class Held:
    """A request that the catalog gets later: after so many ``commits``, or when what its ``fate`` says happens."""

    request: Request
    fate: Fault
    commits: int

    def waits_for(self, event: str) -> bool:
        """Count ``event``; whether it is still to wait."""
        if self.fate is Fault.AFTER_COMMITS and event == "commit":
            self.commits -= 1
            return self.commits > 0
        return {Fault.AFTER_ROLLBACK: "rollback", Fault.AFTER_EXPIRY: "expiry"}.get(self.fate) != event


@dataclass
class Gate(faults.Gate):
    """One process of Firn, from its first call to its end."""

    world: "World"
    script: Script = NOTHING
    dead: bool = False
    suspended: bool = False
    """True while another actor is at work within a call of this process."""
    held: list[Held] = field(default_factory=list)
    calls: Counter[Call] = field(default_factory=Counter)

    def load(self, catalog: GatedCatalog, identifier: Any) -> Table:
        fault, table = self._fault_at(Call.LOAD), catalog.loaded(identifier)
        match fault:
            case Fault.FAILS:
                self.world.happened(fault)
                raise ConnectionError("the catalog is down")
            case Fault.HEADS:
                return self._heads(table)
            case Fault.STALE:
                return self._stale(table)
        return table

    def _heads(self, table: Table) -> Table:
        heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
        left = [one for one in table.metadata.snapshots if one.snapshot_id in heads]
        if len(left) < len(table.metadata.snapshots):
            self.world.happened(Fault.HEADS)
        metadata = table.metadata.model_copy(update={"snapshots": left})
        return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)

    def _stale(self, table: Table) -> Table:
        past = self.world.past
        if len(past) <= self.script.commits:
            return table
        location = past[-1 - self.script.commits]
        try:
            metadata = FromInputFile.table_metadata(table.io.new_input(location))
        except FileNotFoundError:
            return table
        self.world.happened(Fault.STALE)
        return Table(table.name(), metadata, location, table.io, table.catalog)

    def commit(self, request: Request) -> CommitTableResponse:
        fault, request = self._fault_at(Call.COMMIT), self.world.dated(request)
        if fault is None:
            return request.deliver()
        self.world.happened(fault)
        match fault:
            case Fault.BESIDE:
                self._let_another_act()
                return request.deliver()
            case Fault.TWICE:
                request.deliver()
                return request.deliver()
            case Fault.KILLED:
                request.deliver()
                self._die()
            case Fault.FAILED:
                request.deliver()
            case Fault.AFTER_COMMITS | Fault.AFTER_ROLLBACK | Fault.AFTER_EXPIRY:
                self.held.append(Held(request, fault, self.script.commits))
        if not self.script.answer:
            self._die()
        raise ANSWERS[self.script.answer]()

    def applied(self, request: Request, response: CommitTableResponse) -> None:
        self.world.changed(request, response)

    def read(self, path: str) -> None:  # noqa: ARG002  # all reads end with the process
        self._alive()

    def write(self, path: str) -> None:  # noqa: ARG002  # it may be any file
        self._fault_at(Call.WRITE)

    def delete(self, path: str) -> bool:
        fault = self._fault_at(Call.DELETE)
        if fault:
            self.world.happened(fault)
        match fault:
            case Fault.DELETE_FAILS:
                raise OSError(errno.EIO, "the store answered 503")
            case Fault.LIES:
                self.world.checker.expired.discard(path)
                return False
            case Fault.KILLED_BEFORE:
                self._die()
            case Fault.KILLED_AFTER:
                # The file goes by the hand of this last call.
                self.dead = True
        if not self.suspended:
            self.world.checker.deleting(path)
        return True

    def _fault_at(self, call: Call) -> Fault | None:
        """Count a call; what goes wrong at it, unless it is that another actor comes before it, who then has."""
        self._alive()
        if self.suspended:
            return None
        self.calls[call] += 1
        if self.script[:2] != (call, self.calls[call]):
            return None
        if self.script.fault is not Fault.MEANWHILE:
            return self.script.fault
        self.world.happened(f"{Fault.MEANWHILE} at a {call}")
        self._let_another_act()
        return None

    def _let_another_act(self) -> None:
        self.suspended = True
        try:
            self.world.acting()
        finally:
            self.suspended = False

    def _alive(self) -> None:
        if self.dead and not self.suspended:
            raise Killed

    def _die(self) -> NoReturn:
        self.dead = True
        raise Killed
