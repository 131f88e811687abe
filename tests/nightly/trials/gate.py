"""The gate of a step of Firn: its script says which load, request or deletion goes wrong, and how."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table

from tests.nightly.trials.faults import ANSWERS, HELD, NOTHING, Deletion, Fate, Load, Meanwhile, Script, lost_store
from tests.support import faults
from tests.support.faults import GatedCatalog, Killed, Request

if TYPE_CHECKING:
    from tests.nightly.trials.world import World


@dataclass
class Held:
    """A request that the catalog gets later: after so many ``commits``, or when ``event`` happens."""

    request: Request
    fate: Fate
    commits: int

    def waits_for(self, event: str) -> bool:
        """Count ``event``; whether it is still to wait."""
        if self.fate is Fate.AFTER_COMMITS and event == "commit":
            self.commits -= 1
            return self.commits > 0
        return {Fate.AFTER_ROLLBACK: "rollback", Fate.AFTER_EXPIRY: "expiry"}.get(self.fate) != event


@dataclass
class Gate(faults.Gate):
    """One process of Firn, from its first call to its end."""

    world: "World"
    script: Script = NOTHING
    dead: bool = False
    suspended: bool = False
    """True while another actor is at work within a call of this process."""
    held: list[Held] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    fate: str = ""
    """The fate that a request of this process has met."""

    def __post_init__(self) -> None:
        self._lock = threading.RLock()

    def alive(self) -> None:
        """Raise when this process is dead."""
        if self.dead and not self.suspended:
            raise Killed

    def load(self, catalog: GatedCatalog, identifier: Any) -> Table:
        self.alive()
        with self._lock:
            self.calls["load"] += 1
            self._meanwhile(Meanwhile.LOAD)
            table = catalog.loaded(identifier)
            fault = self.script.load
            if not fault or fault[0] != self.calls["load"]:
                return table
            _, what, back = fault
            if what is Load.FAILS:
                self.world.happened(what)
                raise ConnectionError("the catalog is down")
            if what is Load.HEADS:
                return self._heads(table)
            return self._stale(table, back)

    def _heads(self, table: Table) -> Table:
        heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
        left = [one for one in table.metadata.snapshots if one.snapshot_id in heads]
        if len(left) < len(table.metadata.snapshots):
            self.world.happened(Load.HEADS)
        metadata = table.metadata.model_copy(update={"snapshots": left})
        return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)

    def _stale(self, table: Table, back: int) -> Table:
        past = self.world.past
        if len(past) <= back:
            return table
        location = past[-1 - back]
        try:
            metadata = FromInputFile.table_metadata(table.io.new_input(location))
        except FileNotFoundError:
            return table
        self.world.happened(Load.STALE)
        return Table(table.name(), metadata, location, table.io, table.catalog)

    def commit(self, request: Request) -> CommitTableResponse:
        self.alive()
        with self._lock:
            self.calls["commit"] += 1
            request = self.world.dated(request)
            fault = self.script.commit
            if not fault or fault[0] != self.calls["commit"]:
                return request.deliver()
            _, fate, answer, commits = fault
            self.fate = fate if fate in (Fate.TWICE, Fate.BESIDE, Fate.KILLED) else f"{fate}, {answer}"
            self.world.happened(fate)
            return self._befallen(request, fate, answer, commits)

    def _befallen(self, request: Request, fate: Fate, answer: str, commits: int) -> CommitTableResponse:
        if fate is Fate.BESIDE:
            self.while_suspended(self.world.acting)
            return request.deliver()
        if fate in HELD:
            self.held.append(Held(request, fate, commits))
        elif fate is not Fate.DROPPED:
            request.deliver()
        if fate is Fate.TWICE:
            return request.deliver()
        if fate is Fate.KILLED:
            self.dead = True
            raise Killed
        raise ANSWERS[answer]()

    def while_suspended(self, action: Callable[[], object]) -> None:
        """Let another actor work within a call of this process."""
        self.suspended = True
        try:
            action()
        finally:
            self.suspended = False

    def applied(self, request: Request, response: CommitTableResponse) -> None:
        self.world.changed(request, response)

    def _meanwhile(self, call: Meanwhile) -> None:
        """Count a call; another actor comes before it if it is the one."""
        self.calls[call] += 1
        if self.script.meanwhile == (self.calls[call], call):
            self.world.happened(call)
            self.while_suspended(self.world.acting)

    def read(self, path: str) -> None:  # noqa: ARG002  # all reads end with the process
        self.alive()

    def write(self, path: str) -> None:  # noqa: ARG002  # it may be any file
        self.alive()
        if not self.suspended:
            self._meanwhile(Meanwhile.WRITE)

    def delete(self, path: str) -> bool:
        if self.suspended:
            return True
        self.alive()
        with self._lock:
            self._meanwhile(Meanwhile.DELETE)
            goes = self._goes()
        if goes:
            self.world.checker.deleting(path)
        return goes

    def _goes(self) -> bool:
        """True if the store deletes a file when it is asked to."""
        fault = self.script.deletion
        if not fault or fault[0] != self.calls[Meanwhile.DELETE]:
            return True
        self.world.happened(fault[1])
        match fault[1]:
            case Deletion.FAILS:
                raise lost_store()
            case Deletion.LIES:
                return False
            case Deletion.KILLED_BEFORE:
                self.dead = True
                raise Killed
            case Deletion.KILLED_AFTER:
                # The file goes by the hand of this last call.
                self.dead = True
        return True
