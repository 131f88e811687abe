"""The one way in which Firn commits to a table: any number of tries, settled after any error.

A catalog may apply a request never, once or twice, now or later, and may answer each of these with any error: clients
send requests again, and proxies repeat them. Therefore no error tells whether a commit was applied. After an error,
``settle`` loads the table again and decides by this load alone. Snapshot ids stay the same in all tries, so a snapshot
of the commit is found whichever try made it, and the catalog refuses a second one: the id exists, its sequence number
is taken, and the branch has moved.

A commit deletes nothing, because a request that seems lost may still name the files that were written for it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from random import uniform
from time import monotonic, sleep
from typing import Final

from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
)
from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId

from firnlake.errors import FirnError, OutcomeUnknownError, UnavailableError
from firnlake.iceberg.branches import SIDE_BRANCHES, newest_of
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import BranchChange, Commit, CommitRequest, SnapshotIds

PATIENCE_SECONDS: Final = 300
"""Maximum time, in seconds, for which a commit is tried again."""
REFUSALS: Final = 3
"""Number of tries of a commit that the catalog refuses for another reason than a conflict, such as missing rights."""
LOOKS: Final = 5
"""Number of loads in a row that may fail, or not tell what became of a commit."""
_PAUSE_SECONDS: Final = 0.05
"""Average pause before the first look after an error. It is short, because appenders do not wait: the longer the pause,
the more the next try must check. As long as the table stays as it was, each pause is twice as long as the last."""
_LONGEST_PAUSE_SECONDS: Final = 5.0

_PASSING: Final = (
    *(CommitFailedException, CommitStateUnknownException),
    *(ServerError, ServiceUnavailableError, TooManyRequestsError),
    OSError,
)
"""Errors after which the same request may succeed later. OSError includes broken connections, timeouts and the errors
of HTTP clients. They only decide how often a commit is tried, never what became of it."""


@dataclass(frozen=True)
class Settled:
    """The outcome of a commit: the table after it, and the number of tries."""

    table: Table
    tries: int
    snapshot_id: int | None = None
    """Id of the new snapshot on main; None if the commit added no snapshot, or if nothing was left to do."""


def commit_changes(
    lake: Lake,
    identifier: str,
    changes: Callable[[Table], Mapping[str, BranchChange]],
) -> Settled:
    """Commit the ``changes`` of main and side branches, which each try finds in the table as it was just loaded.

    There is no commit if there are no changes. Raises the errors of ``settle`` and of ``changes``.
    """
    ids = SnapshotIds()

    def request(table: Table) -> CommitRequest | None:
        found = changes(table)
        return Commit(table, found.items(), ids).request(table) if found else None

    return settle(lake, identifier, request)


def create_side_branches(lake: Lake, identifier: str) -> Table:
    """Create the missing side branches of table ``identifier``, empty, in one commit; return the table.

    Raises RefusedError when another tool uses the name of a side branch, and the errors of ``commit_changes``.
    """

    def missing(table: Table) -> Mapping[str, BranchChange]:
        return {name: BranchChange() for name in SIDE_BRANCHES if newest_of(table, name) is None}

    return commit_changes(lake, identifier, missing).table


def settle(
    lake: Lake,
    identifier: str,
    request: Callable[[Table], CommitRequest | None],
    load: Callable[[], Table] | None = None,
) -> Settled:
    """Commit to table ``identifier`` until it is certain what became of the commit; return the outcome.

    Each try loads the table with ``load`` and asks the catalog for the ``request`` on exactly this load. ``request``
    makes all checks of the commit; it returns None if there is nothing to do, and its errors end the commit.

    Raises UnavailableError when other commits come first for PATIENCE_SECONDS; OutcomeUnknownError when the table does
    not show whether the commit was applied, or the catalog keeps refusing it.
    """
    return _Settling(lake, identifier, request, load or (lambda: lake.table(identifier))).run()


class _State(Enum):
    """What a load shows of a commit."""

    FRESH = auto()
    """Nothing was sent yet."""
    LANDED = auto()
    OPEN = auto()
    """The table is as it was: the request was refused, or it is still under way."""
    LOST = auto()
    """Another commit came first, so the request can no longer be applied."""
    UNKNOWN = auto()


@dataclass(frozen=True)
class _Sent:
    """A request that the catalog answered with an error, and the table on which it was made."""

    request: CommitRequest
    on: Table
    error: Exception

    def state(self, seen: Table) -> _State:
        """What ``seen``, loaded after the error, shows of the request."""
        before, after = self.on.metadata, seen.metadata
        if not {one.snapshot_id for one in after.snapshots}.isdisjoint(self.request.snapshot_ids):
            return _State.LANDED
        if after.table_uuid != before.table_uuid:
            return _State.LOST
        if not self.request.snapshot_ids:
            # A commit without a snapshot may be applied twice, so it is simply made again.
            return _State.OPEN
        is_former = any(one.metadata_file == seen.metadata_location for one in before.metadata_log)
        if is_former or after.next_sequence_number() < before.next_sequence_number():
            # An old answer, for example of a cache. It shows nothing about the request.
            return _State.UNKNOWN
        if after.next_sequence_number() <= self.request.sequence_number:
            heads = (one for one in self.request.requirements if isinstance(one, AssertRefSnapshotId))
            return _State.OPEN if all(_head(seen, one.ref) == one.snapshot_id for one in heads) else _State.LOST
        taken = any(one.sequence_number == self.request.sequence_number for one in after.snapshots)
        return _State.LOST if taken else _State.UNKNOWN


def _head(table: Table, name: str) -> int | None:
    ref = table.metadata.refs.get(name)
    return ref.snapshot_id if ref else None


@dataclass
class _Settling:
    """The tries of one commit."""

    lake: Lake
    identifier: str
    request: Callable[[Table], CommitRequest | None]
    load: Callable[[], Table]
    sent: _Sent | None = None
    tries: int = 0
    refusals: int = 0
    """Number of tries in a row that the catalog refused for another reason than a conflict."""
    unsettled: int = 0
    """Number of looks in a row that showed the table as it was, or nothing."""
    blind: int = 0
    """Number of looks in a row that showed nothing."""
    _until: float = 0.0

    def run(self) -> Settled:
        self._until = monotonic() + PATIENCE_SECONDS
        while True:
            seen = self._look()
            state = self.sent.state(seen) if self.sent and seen else _State.UNKNOWN if self.sent else _State.FRESH
            if seen and self.sent and state is _State.LANDED:
                return Settled(seen, self.tries, self.sent.request.snapshot_ids[0])
            self._count(state, seen)
            if seen and state is not _State.UNKNOWN and (done := self._try(seen, state)):
                return done
            factor = 2 ** min(self.unsettled, 10)
            sleep(uniform(0, 2) * min(factor * _PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS))  # noqa: S311

    def _look(self) -> Table | None:
        """The table as it is now; None if a request was sent and the table can't be loaded."""
        try:
            return self.load()
        except (FirnError, OSError):
            if not self.sent:
                raise
            return None

    def _count(self, state: _State, seen: Table | None) -> None:
        """Count the looks; raise the error with which the commit ends if there were enough."""
        self.unsettled = self.unsettled + 1 if state in (_State.OPEN, _State.UNKNOWN) else 0
        self.blind = self.blind + 1 if state is _State.UNKNOWN else 0
        if state is _State.LOST or (
            state is _State.OPEN and seen and self.sent and seen.metadata_location != self.sent.on.metadata_location
        ):
            # Another commit explains the refusal, even if it has moved no branch.
            self.refusals = self.unsettled = 0
        is_late = monotonic() >= self._until
        if self.sent and is_late and state is _State.LOST:
            raise UnavailableError(
                f"table {self.identifier}: lost every race against other commits for {PATIENCE_SECONDS} s "
                f"(tries: {self.tries}): {self.lake.said(self.sent.error)}; nothing was changed; try again later"
            ) from self.sent.error
        if self.sent and state is not _State.LOST and (is_late or self.blind >= LOOKS or self.refusals >= REFUSALS):
            raise self._unknown(self.sent)

    def _try(self, target: Table, state: _State) -> Settled | None:
        """Make the commit on ``target``; None if the catalog answered with an error."""
        try:
            with self.lake.answering():
                request = self.request(target)
        except Exception as error:
            if self.sent and state is _State.OPEN:
                # The request that was sent may still be applied, so nobody may be told that nothing was changed.
                raise self._unknown(self.sent, f"; meanwhile, the commit can't be made again: {error}") from error
            raise
        if request is None:
            return Settled(target, self.tries)
        self.tries += 1
        try:
            answer = self.lake.catalog.commit_table(target, request.requirements, request.updates)
        except Exception as error:  # noqa: BLE001  # whatever it is, only the table tells what became of the commit
            self.sent = _Sent(request, target, error)
            self.refusals = 0 if self._passes(error) else self.refusals + 1
            return None
        after = Table(target.name(), answer.metadata, answer.metadata_location, target.io, self.lake.catalog)
        return Settled(after, self.tries, next(iter(request.snapshot_ids), None))

    def _passes(self, error: Exception) -> bool:
        """True if the same request may succeed later, as far as ``error`` tells; false for missing rights."""
        from sqlalchemy.exc import OperationalError

        return isinstance(error, (*_PASSING, OperationalError))

    def _unknown(self, sent: _Sent, why: str = "") -> OutcomeUnknownError:
        ids = sent.request.snapshot_ids
        look = f"whether snapshot {ids[0]} is in its history" if ids else "whether the change is there"
        error = OutcomeUnknownError(
            f"table {self.identifier}: {self.lake.said(sent.error)}: whether catalog {self.lake.name} has applied this "
            f"commit is unknown (tries: {self.tries}){why}; no file was deleted; look {look}; a new run finds out "
            "by itself"
        )
        error.__cause__ = sent.error
        return error
