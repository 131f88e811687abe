"""Commit optimistically beside other writers: check the newest snapshot, commit on top of it, or try again.

One commit may carry out several plans. A plan in conflict with the table's current state leaves the commit, and the
others are committed without it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_delay,
    wait_random,
)

from pipeline.errors import ConflictError, FirnError, OutcomeUnknownError, RefusedError, UnavailableError
from pipeline.history.published_plans import plans_of, published
from pipeline.history.record_counts import RecordCounts
from pipeline.lake import Lake
from pipeline.lake.manifests import Manifests
from pipeline.lake.snapshot_commit import SnapshotCommit
from pipeline.publish.throttle import Throttle

LOSING_SECONDS = 300
"""Maximum time, in seconds, that a commit keeps retrying after lost races against appenders."""


class Publishable(Protocol):
    """Work to commit, for any subset of its plans (by id)."""

    @property
    def table(self) -> str:
        """Identifier of the target table."""
        ...

    @property
    def job_id(self) -> str:
        """Id that identifies the commit in the table's history."""
        ...

    @property
    def planned_on(self) -> Collection[int]:
        """Ids of the snapshots that the plans were made on."""
        ...

    def prepare(self, target: Table, plans: Collection[str]) -> SnapshotCommit:
        """The commit that carries out ``plans``."""
        ...

    def conflicts(self, current: Table, plans: Collection[str], manifests: Manifests) -> Mapping[str, FirnError]:
        """The conflicts of ``plans`` with the snapshot ``current``, by plan id."""
        ...


@dataclass(frozen=True)
class Publication:
    """Outcome of one plan. ``repeated`` is true when an earlier commit had published it: nothing changed now.

    ``attempts`` are those of the commit, shared by all plans of a job. ``counts`` is None for a repeated plan.
    """

    table: str
    plan_id: str
    snapshot_id: int
    attempts: int
    repeated: bool
    counts: RecordCounts | None


@dataclass(frozen=True)
class PublishResult:
    """Outcome of the plans of one job, by plan id: published in one commit, or the reason why not."""

    publications: tuple[Publication, ...] = ()
    failures: Mapping[str, FirnError] = field(default_factory=dict)

    def only(self) -> Publication:
        """The publication of a single-plan job; raises the failure of an unpublished one.

        Raises RefusedError for a job of several plans: by then every publishable plan is published.
        """
        if len(self.publications) + len(self.failures) != 1:
            raise RefusedError(f"{len(self.publications)} plans were published in one commit; allowed here: one")
        for error in self.failures.values():
            raise error
        return self.publications[0]


def commit(
    lake: Lake, target: Table, work: Publishable, counts: Mapping[str, RecordCounts], throttle: Throttle
) -> PublishResult:
    """Carry out the plans in ``counts``, by id, with one commit; plans in conflict are left out and named.

    ``target`` is the table as the caller has loaded it: what does not depend on the snapshot is prepared on it.

    Raises UnavailableError when races are lost for LOSING_SECONDS; OutcomeUnknownError when the catalog did not report
    the commit's outcome; RefusedError when the identifier now names another table.
    """
    race = _Race(lake, work, Manifests(target.io), throttle)
    plans = dict(counts)
    failures: dict[str, FirnError] = {}
    while plans:
        prepared = work.prepare(target, plans)
        try:
            snapshot_id, attempts = race.win(prepared, plans)
        except ConflictError as error:
            # The history was read and lacks the job. No other error proves that no try was applied.
            prepared.abandon(target)
            conflicts = error.by_plan if isinstance(error, _UnfitError) else dict.fromkeys(plans, error)
            failures |= conflicts
            plans = {plan_id: own for plan_id, own in plans.items() if plan_id not in conflicts}
            continue
        if snapshot_id != prepared.snapshot_id:
            # Another process carried out the same job first.
            prepared.abandon(target)
            return repeated(lake.table(work.table), work.job_id, snapshot_id, counts, attempts)
        prepared.tidy(target)
        done = (
            Publication(work.table, one, snapshot_id, attempts, repeated=False, counts=own)
            for one, own in plans.items()
        )
        return PublishResult(tuple(done), failures)
    return PublishResult((), failures)


def repeated(
    target: Table, job_id: str, snapshot_id: int, plans: Collection[str] = (), attempts: int = 0
) -> PublishResult:
    """The result of a job that commit ``snapshot_id`` carried out before, with those of ``plans`` that it left out."""
    snapshot = target.snapshot_by_id(snapshot_id)
    done = {plan.id for plan in plans_of(target, snapshot)} if snapshot else {job_id}
    table = ".".join(target.name())
    return PublishResult(
        tuple(Publication(table, one, snapshot_id, attempts, repeated=True, counts=None) for one in sorted(done)),
        {
            one: ConflictError(
                f"plan {one}: the other plans of job {job_id} were published as snapshot {snapshot_id} of {table}, "
                "without this one; plan again"
            )
            for one in plans
            if one not in done
        },
    )


class _UnfitError(ConflictError):
    """Some plans conflict with the snapshot to commit on; the others may be committed without them."""

    def __init__(self, by_plan: Mapping[str, FirnError]) -> None:
        super().__init__("; ".join(map(str, by_plan.values())))
        self.by_plan = by_plan


@dataclass(frozen=True)
class _Race:
    """The tries of some work to be committed before others commit; each try checks and commits on one load."""

    lake: Lake
    work: Publishable
    manifests: Manifests
    throttle: Throttle

    def win(self, prepared: SnapshotCommit, plans: Collection[str]) -> tuple[int, int]:
        """Commit ``prepared`` once nothing conflicts with the very snapshot that it is committed on.

        Returns the snapshot that published the job (another process's when that was faster) and the number of tries.
        """
        tries = Retrying(
            retry=retry_if_exception_type(CommitFailedException),
            # Short: appenders do not wait, so a longer pause only gives the next try more to check.
            wait=wait_random(0, 0.1),
            stop=stop_after_delay(LOSING_SECONDS),
            retry_error_callback=_lost,
        )
        snapshot_id = tries(self._attempt, prepared, plans)
        return snapshot_id, int(tries.statistics["attempt_number"])

    def _attempt(self, prepared: SnapshotCommit, plans: Collection[str]) -> int:
        """Check and commit on the snapshot that is current once the throttle lets go; returns the new one's id."""
        target = self.throttle.wait(self.work.table, self.work.planned_on)
        before = published(target, self.work.job_id)
        if before is not None:
            return before
        conflicts = self.work.conflicts(target, plans, self.manifests)
        if conflicts:
            raise _UnfitError(conflicts)
        try:
            # Retry a busy catalog. If it did apply the commit, the branch has moved and rejects a second one.
            self.lake.when_free(lambda: prepared.commit(self.lake, target, self.manifests))
        except CommitFailedException:
            raise
        except Exception as error:
            # After any other error the commit may have been applied: look before a retry or a clean-up.
            landed = self._landed()
            if landed is None:
                raise OutcomeUnknownError(
                    f"table {self.work.table}: the commit of {self.work.job_id} has an unknown outcome ({error}); "
                    "no file was deleted, try again"
                ) from error
            return landed
        self.throttle.committed(self.work.table)
        return prepared.snapshot_id

    def _landed(self) -> int | None:
        """The snapshot that published the job; None when there is none, or the catalog does not answer."""
        try:
            return published(self.lake.table(self.work.table), self.work.job_id)
        except UnavailableError:
            return None


def _lost(state: RetryCallState) -> int:
    # No ConflictError: the plans are still valid, and another process may be publishing them right now.
    raise UnavailableError(
        f"lost {state.attempt_number} races against other commits within {LOSING_SECONDS} s; try again later"
    )
