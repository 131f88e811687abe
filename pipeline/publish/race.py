"""Win one commit beside other writers: check on the newest snapshot, commit on top of it, or try again.

The commit may carry out several plans. One that conflicts with what the table holds now leaves the commit, and the
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
from pipeline.segments.manifests import Manifests
from pipeline.stage.swap import Swap

RACE_SECONDS = 300
"""How long a commit goes on losing races against appenders before it gives up."""


class Work(Protocol):
    """What is to be committed, for any choice of its plans (by id)."""

    @property
    def table(self) -> str:
        """Identifier of the table that is committed to."""
        ...

    @property
    def job_id(self) -> str:
        """What the commit is known by."""
        ...

    def swap(self, target: Table, plans: Collection[str]) -> Swap:
        """The commit that carries out ``plans``."""
        ...

    def conflicts(self, current: Table, plans: Collection[str], manifests: Manifests) -> Mapping[str, ConflictError]:
        """Which of ``plans`` can't be carried out on the snapshot that is ``current``, and why."""
        ...

    def hand_over(self, current: Table, plans: Collection[str]) -> None:
        """Do what must be done before the commit, once."""
        ...

    def take_back(self, plans: Collection[str]) -> None:
        """Undo that for plans that are not carried out."""
        ...


@dataclass(frozen=True)
class Publication:
    """What became of one plan. ``repeated`` is true when it had been published before: nothing was changed now.

    ``attempts`` are those of the commit, which plans of a job share. ``counts`` is None for a repeated one.
    """

    table: str
    plan_id: str
    snapshot_id: int
    attempts: int
    repeated: bool
    counts: RecordCounts | None


@dataclass(frozen=True)
class Published:
    """What became of the plans of one job: published with one commit, or why not, by plan id."""

    publications: tuple[Publication, ...] = ()
    failures: Mapping[str, FirnError] = field(default_factory=dict)

    def only(self) -> Publication:
        """The publication of a job of one plan; raises what kept it from being published.

        RefusedError for a job of several: all that could be published is published then.
        """
        if len(self.publications) + len(self.failures) != 1:
            raise RefusedError(f"{len(self.publications)} plans were published together; allowed here: one")
        for error in self.failures.values():
            raise error
        return self.publications[0]


def commit(lake: Lake, work: Work, counts: Mapping[str, RecordCounts]) -> Published:
    """Carry out the plans whose ``counts`` are given, by id, with one commit; those in conflict are left out and named.

    Raises UnavailableError when races are lost for RACE_SECONDS; OutcomeUnknownError when the catalog did not say what
    became of the commit; RefusedError when the target is another table by now.
    """
    target = lake.table(work.table)
    manifests = Manifests(target.io)
    plans = dict(counts)
    failures: dict[str, FirnError] = {}
    while plans:
        swap = work.swap(target, plans)
        try:
            snapshot_id, attempts = _race(lake, work, swap, plans, manifests)
        except ConflictError as error:
            # The history was read and does not have the job. No other error proves that no try was applied.
            swap.abandon(target)
            conflicts = error.by_plan if isinstance(error, _LeftOutError) else dict.fromkeys(plans, error)
            work.take_back(conflicts)
            failures |= conflicts
            plans = {plan_id: own for plan_id, own in plans.items() if plan_id not in conflicts}
            continue
        if snapshot_id != swap.snapshot_id:
            # Another process carried out the same job first.
            swap.abandon(target)
            found = repeated(lake.table(work.table), work.job_id, snapshot_id, counts, attempts)
            work.take_back(found.failures)
            return found
        swap.tidy(target)
        done = (
            Publication(work.table, one, snapshot_id, attempts, repeated=False, counts=own)
            for one, own in plans.items()
        )
        return Published(tuple(done), failures)
    return Published((), failures)


def repeated(target: Table, job_id: str, snapshot_id: int, plans: Collection[str] = (), attempts: int = 0) -> Published:
    """What became of a job that another commit, ``snapshot_id``, carried out; those of ``plans`` that it left out."""
    snapshot = target.snapshot_by_id(snapshot_id)
    done = {plan.id for plan in plans_of(target, snapshot)} if snapshot else {job_id}
    table = ".".join(target.name())
    return Published(
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


class _LeftOutError(ConflictError):
    """Some plans of a commit conflict with the snapshot that it would be made on; the others may go without them."""

    def __init__(self, by_plan: Mapping[str, ConflictError]) -> None:
        super().__init__("; ".join(map(str, by_plan.values())))
        self.by_plan = by_plan


def _race(lake: Lake, work: Work, swap: Swap, plans: Collection[str], manifests: Manifests) -> tuple[int, int]:
    """Commit ``swap`` once nothing conflicts on the very snapshot that it is committed on.

    Returns the snapshot that published the job (another process's when that was faster) and how many tries it took.
    """
    tries = Retrying(
        retry=retry_if_exception_type(CommitFailedException),
        # Short: appenders do not wait for us, so a longer pause only lets them add what the next try has to look at.
        wait=wait_random(0, 0.1),
        stop=stop_after_delay(RACE_SECONDS),
        retry_error_callback=_lost,
    )
    snapshot_id = tries(_attempt, lake, work, swap, plans, manifests)
    return snapshot_id, int(tries.statistics["attempt_number"])


def _lost(state: RetryCallState) -> int:
    # No ConflictError: the plans are as good as before, and another process may be publishing them at this moment.
    raise UnavailableError(
        f"lost {state.attempt_number} races against other commits within {RACE_SECONDS} s; try again later"
    )


def _attempt(lake: Lake, work: Work, swap: Swap, plans: Collection[str], manifests: Manifests) -> int:
    """Check and commit on the snapshot that is current now; returns the new snapshot's id."""
    target = lake.table(work.table)
    before = published(target, work.job_id)
    if before is not None:
        return before
    conflicts = work.conflicts(target, plans, manifests)
    if conflicts:
        raise _LeftOutError(conflicts)
    work.hand_over(target, plans)
    try:
        # A busy catalog is asked again. Had it applied the commit after all, the branch has moved and refuses another.
        lake.when_free(lambda: swap.commit(lake, target, manifests))
    except CommitFailedException:
        raise
    except Exception as error:
        # Anything else leaves it open whether the commit was applied: look before anybody retries or cleans up.
        found = _landed(lake, work)
        if found is None:
            raise OutcomeUnknownError(
                f"table {work.table}: the commit of {work.job_id} ended without an answer ({error}); everything is "
                "kept, try again"
            ) from error
        return found
    return swap.snapshot_id


def _landed(lake: Lake, work: Work) -> int | None:
    """The snapshot by which the job is known to be published; None also when the catalog does not answer."""
    try:
        return published(lake.table(work.table), work.job_id)
    except UnavailableError:
        return None
