"""A real SQL catalog behind a gate, which decides what becomes of each load and each request to commit.

PyIceberg loads the class through its own ``py-catalog-impl`` setting.
"""

import threading
from dataclasses import dataclass
from typing import Any, Protocol

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, TableRequirement, TableUpdate

from tests.trials.lines import Effect


@dataclass(frozen=True)
class Request:
    """A request to commit, which can be delivered now, later, or more than once."""

    catalog: "TrialCatalog"
    table: Table
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]
    effect: Effect
    """What a snapshot that it adds to main does to what main shows."""

    @property
    def identifier(self) -> str:
        return ".".join(self.table.name())

    @property
    def pointer(self) -> str:
        """The name of the catalog's pointer to the table."""
        return f"{self.catalog.engine.url} {self.identifier}"

    @property
    def onto_main(self) -> list[Snapshot]:
        """The snapshots that it adds to main, in their order: an overwrite adds two."""
        moved = {
            one.snapshot_id for one in self.updates if isinstance(one, SetSnapshotRefUpdate) and one.ref_name == "main"
        }
        added = (one.snapshot for one in self.updates if isinstance(one, AddSnapshotUpdate))
        return [one for one in added if one.snapshot_id in moved]

    def deliver(self) -> CommitTableResponse:
        """Apply it as the catalog does, or raise what the catalog answers."""
        return self.catalog.apply(self)


class Gate(Protocol):
    """Decides about loads and requests of one catalog object."""

    def load(self, catalog: "TrialCatalog", identifier: Any) -> Table: ...

    def commit(self, request: Request) -> CommitTableResponse: ...

    def applied(self, request: Request, response: CommitTableResponse) -> None: ...


class _Open:
    """Lets everything pass, and tells nobody."""

    def load(self, catalog: "TrialCatalog", identifier: Any) -> Table:
        return catalog.loaded(identifier)

    def commit(self, request: Request) -> CommitTableResponse:
        return request.deliver()

    def applied(self, request: Request, response: CommitTableResponse) -> None:
        """Tell nobody."""


class TrialCatalog(SqlCatalog):
    """Passes loads and requests to its gate; ``apply`` and ``loaded`` are what the SQL catalog itself does."""

    gate: Gate = _Open()

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._inside = threading.local()
        self.by_firn = False
        """True for a catalog object of Firn's."""
        self.effect: Effect | None = None
        """What the request that is made now does to main; None: readers see the same records."""

    def load_table(self, identifier: Any) -> Table:
        if getattr(self._inside, "applying", False):
            return super().load_table(identifier)
        return self.gate.load(self, identifier)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        return self.gate.commit(Request(self, table, tuple(requirements), tuple(updates), self.effect or Effect()))

    def loaded(self, identifier: Any) -> Table:
        """The table as it is now."""
        return super().load_table(identifier)

    def apply(self, request: Request) -> CommitTableResponse:
        """Check the requirements and swap the pointer; whoever watches the gate is told."""
        self._inside.applying = True
        try:
            response = super().commit_table(request.table, request.requirements, request.updates)
        finally:
            self._inside.applying = False
        self.gate.applied(request, response)
        return response
