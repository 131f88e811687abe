"""The catalog of the trials: it knows who asks it, and what a request does to main."""

from dataclasses import dataclass
from typing import Any

from pyiceberg.table import CommitTableResponse, Table

from tests.nightly.trials.lines import Effect
from tests.support.faults import GatedCatalog, Request


@dataclass(frozen=True)
class TrialRequest(Request):
    """A request to commit, with what a snapshot that it adds to main does to what main shows."""

    effect: Effect
    by_firn: bool


class TrialCatalog(GatedCatalog):
    """A catalog object of Firn's, or of somebody else's."""

    by_firn = False
    effect: Effect | None = None
    """What the request that is made now does to main; None: readers see the same records."""

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        effect = self.effect or Effect()
        return self.gate.commit(TrialRequest(self, table, tuple(requirements), tuple(updates), effect, self.by_firn))
