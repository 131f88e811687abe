"""The one way in which Firn commits to a table: any number of tries, settled after any error.

A catalog may apply a request never, once or twice, now or later, and may answer each of these with any error: clients
send requests again, and proxies repeat them. Therefore no error tells whether a commit was applied. After an error,
``settle`` loads the table again and decides by this load alone. Snapshot ids stay the same in all tries, so a snapshot
of the commit is found whichever try made it, and the catalog refuses a second one: the id exists, its sequence number
is taken, and the branch has moved.

A commit deletes nothing, because a request that seems lost may still name the files that were written for it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from random import uniform
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
)
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, TableRequirement, TableUpdate

from firnlake.errors import ConflictError, FirnError, OutcomeUnknownError, UnavailableError
from firnlake.iceberg.branches import (
    FIRN_BRANCHES,
    MEMORY,
    REMOVED_TOMBSTONES,
    SIDE_BRANCHES,
    ancestors,
    memory_named,
    newest_of,
)
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import BranchChange, BranchSnapshot
from firnlake.iceberg.manifests import Manifests
from firnlake.iceberg.snapshots import repeated

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

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
class CommitRequest:
    """What to ask of the catalog: requirements and updates, both made on one load of a table."""

    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]
    snapshot_ids: tuple[int, ...] = ()
    """Ids of the snapshots that it adds on main and side branches, main's first; empty if it adds none."""
    sequence_number: int = 0
    """The lowest sequence number of these snapshots."""


@dataclass(frozen=True)
class Settled:
    """The outcome of a commit: the table after it, and the number of tries."""

    table: Table
    tries: int
    snapshot_id: int | None = None
    """Id of the new snapshot on main; None if the commit added no snapshot, or if nothing was left to do."""
    confirmed: bool = True
    """False if the catalog answered with an error, and a later load showed that the commit had been applied."""


class SnapshotIds:
    """The ids of the snapshots of a commit, which stay the same in all tries."""

    def __init__(self) -> None:
        self._drawn: dict[tuple[str, int], int] = {}

    def of(self, target: Table, branch: str, number: int = 0) -> int:
        """The id of the commit's snapshot ``number`` (from 0) on ``branch``, drawn at the first call."""
        if (branch, number) not in self._drawn:
            self._drawn[branch, number] = target.metadata.new_snapshot_id()
        return self._drawn[branch, number]


class Commit:
    """A commit that adds one snapshot to main and to each branch in ``changes``, or changes none of these branches.

    Main always moves, because the branches of a table share its sequence numbers. Otherwise another writer's append to
    main would pass the check that main has not moved, and then fail because its sequence number is taken; no client
    retries after that error.

    Each snapshot on main, or on another branch that is not Firn's, repeats the progress of sinks. Each snapshot
    on main also names the memory that belongs to its history (``iceberg.branches``).
    """

    def __init__(
        self, target: Table, changes: Iterable[tuple[str, BranchChange]] = (), ids: SnapshotIds | None = None
    ) -> None:
        """``changes`` are pairs of a branch and its change; a further change of a branch comes on top of the others."""
        ids, numbers = ids or SnapshotIds(), Counter[str]()
        self._uuid = target.metadata.table_uuid
        self._snapshots: list[BranchSnapshot] = []
        # The sort is stable: main comes first, and the changes of a branch stay in their order.
        listed = sorted(changes, key=lambda one: one[0] != MAIN_BRANCH)
        if not any(branch == MAIN_BRANCH for branch, _ in listed):
            listed.insert(0, (MAIN_BRANCH, BranchChange()))
        for branch, change in listed:
            self._snapshots.append(BranchSnapshot(branch, ids.of(target, branch, numbers[branch]), change))
            numbers[branch] += 1

    @property
    def snapshot_id(self) -> int:
        """Id of the snapshot on main."""
        return self._snapshots[0].snapshot_id

    def request(self, target: Table, manifests: Manifests) -> CommitRequest:
        """Write the manifest lists of the snapshots on top of those of ``target``; return what to ask of the catalog.

        Raises ConflictError when a file to be removed is not live, or when ``target`` is another table of this name.
        """
        if target.metadata.table_uuid != self._uuid:
            raise ConflictError(f"table {'.'.join(target.name())} was dropped, and another table now has its name")
        requirements: list[TableRequirement] = [AssertTableUUID(uuid=self._uuid)]
        updates: list[TableUpdate] = []
        following = target.metadata.next_sequence_number()
        heads: dict[str, Snapshot] = {}
        for number, one in enumerate(self._snapshots, start=following):
            if one.branch not in heads:
                requirements += one.requirements(target)
            parent = heads[one.branch] if one.branch in heads else one.head(target)
            heads[one.branch] = one.snapshot(target, parent, manifests, number, self._repeated(target, one.branch))
            updates += one.updates(target, heads[one.branch])
        ids = tuple(one.snapshot_id for one in self._snapshots)
        return CommitRequest(tuple(requirements), tuple(updates), ids, following)

    def _repeated(self, target: Table, branch: str) -> Mapping[str, str]:
        """What the summary of a snapshot on ``branch`` repeats of the snapshots before it, and the name of memory."""
        if branch in FIRN_BRANCHES:
            return {}
        properties = repeated(ancestors(target, branch))
        if branch == MAIN_BRANCH:
            new = [one.snapshot_id for one in self._snapshots if one.branch == REMOVED_TOMBSTONES]
            named = new[-1] if new else memory_named(target)
            if named is not None:
                properties[MEMORY] = str(named)
        return properties


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
        return Commit(table, found.items(), ids).request(table, Manifests(table.io)) if found else None

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
                return Settled(seen, self.tries, self.sent.request.snapshot_ids[0], confirmed=False)
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
