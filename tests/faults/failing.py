"""What can go wrong at a call of Firn's to its catalog or its store, and the gate at which it does."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse, Table
from sqlalchemy.exc import OperationalError

from tests.faults.world import DAY, NOW, World
from tests.support.faults import Gate, GatedCatalog, Killed, Request
from tests.support.topics import Record

if TYPE_CHECKING:
    from tests.faults.steps import Step

ADDED: Final = Record(20, b"added", b"1", 0, NOW - DAY)
"""What another writer appends meanwhile."""
LATER: Final = 10 * DAY
"""By a clock so far ahead, all that lies there is old."""


class Call(StrEnum):
    """What a process asks of its catalog and of its store."""

    LOAD = "load"
    COMMIT = "commit"
    READ = "read"
    WRITE = "write"
    DELETE = "delete"


class Fault(StrEnum):
    """What goes wrong at a call."""

    KILLED = "killed before it"
    AFTER = "killed after it"
    BROKEN = "no answer, and nothing is done"
    LOST = "the answer is lost"
    BUSY = "the catalog refuses to wait"
    REFUSED = "refused, as if somebody was faster"
    TWICE = "delivered twice"
    OVERTAKEN = "another writer commits right before it"
    TWIN = "another process takes the same step right before it"
    COLLECTED = "maintenance by a later clock comes right before it"
    AGAIN = "likewise, and then another process takes the same step"


FAULTS: Final[Mapping[Fault, tuple[Call, ...]]] = {
    Fault.KILLED: (Call.WRITE, Call.DELETE, Call.COMMIT),
    Fault.AFTER: (Call.COMMIT,),
    Fault.BROKEN: tuple(Call),
    Fault.LOST: (Call.COMMIT,),
    Fault.BUSY: (Call.LOAD, Call.COMMIT),
    Fault.REFUSED: (Call.COMMIT,),
    Fault.TWICE: (Call.COMMIT,),
    Fault.OVERTAKEN: (Call.COMMIT,),
    Fault.TWIN: (Call.WRITE, Call.COMMIT),
    Fault.COLLECTED: (Call.WRITE, Call.DELETE, Call.COMMIT),
    Fault.AGAIN: (Call.WRITE, Call.COMMIT),
}
"""At which calls each can come."""


@dataclass
class Failing(Gate):
    """The gate of a process to whose ``nth`` ``call``, from 1, ``fault`` comes; without one it only counts."""

    world: World
    step: "Step"
    fault: Fault | None = None
    call: Call | None = None
    nth: int = 0
    at: str = ""
    """The call that it has come to."""
    dead: bool = False
    calls: Counter[Call] = field(default_factory=Counter)

    def load(self, catalog: GatedCatalog, identifier: Any) -> Table:
        if self._hits(Call.LOAD, str(identifier)):
            self._befall()
        return catalog.loaded(identifier)

    def read(self, path: str) -> None:
        if self._hits(Call.READ, path):
            self._befall()

    def write(self, path: str) -> None:
        if self._hits(Call.WRITE, path):
            self._befall()

    def delete(self, path: str) -> bool:
        if self._hits(Call.DELETE, path):
            self._befall()
        return True

    def commit(self, request: Request) -> CommitTableResponse:
        if not self._hits(Call.COMMIT, request.identifier):
            return request.deliver()
        if self.fault in (Fault.AFTER, Fault.LOST, Fault.TWICE):
            request.deliver()
        match self.fault:
            case Fault.AFTER:
                self._die()
            case Fault.LOST:
                raise ConnectionError("the connection broke")
            case Fault.TWICE:
                return request.deliver()
            case _:
                self._befall()
        return request.deliver()

    def _befall(self) -> None:
        match self.fault:
            case Fault.KILLED:
                self._die()
            case Fault.BROKEN:
                broken = ConnectionError if self.call in (Call.LOAD, Call.COMMIT) else OSError
                raise broken(f"no answer to {self.at}")
            case Fault.BUSY:
                raise OperationalError("BEGIN", {}, Exception("database is locked"))
            case Fault.REFUSED:
                raise CommitFailedException("branch main has changed")
            case Fault.OVERTAKEN:
                self.world.append(ADDED)
            case Fault.COLLECTED | Fault.AGAIN:
                self.world.open(later_ms=LATER).maintain()
        if self.fault in (Fault.TWIN, Fault.AGAIN):
            self.step.take(self.world, Gate())

    def _hits(self, call: Call, what: str) -> bool:
        """Count the call; whether it is the one."""
        if self.dead:
            raise Killed
        self.calls[call] += 1
        hit = call is self.call and self.calls[call] == self.nth
        self.at = f"{call} {what}" if hit else self.at
        return hit

    def _die(self) -> None:
        self.dead = True
        raise Killed
