"""Commit optimistically while other writers commit: check the newest snapshot and commit on top of it, or try again.

One commit may carry out several plans. A plan in conflict with the table's current state is left out, and the others
are committed without it.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from pyiceberg.table import Table

from firnlake.errors import ConflictError, FirnError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.commit import Commit, CommitRequest, Settled, settle
from firnlake.iceberg.manifests import Manifests
from firnlake.table.memory import drop_void_tombstones, void_tombstones
from firnlake.table.published_plans import RecordCounts, plans_of, published


class Publishable(Protocol):
    """Work to commit; a commit may carry out only some of its plans, selected by id."""

    @property
    def table(self) -> str:
        """Identifier of the target table."""
        ...

    @property
    def job_id(self) -> str:
        """Id that identifies the commit in the table's history."""
        ...

    def prepare(self, target: Table, plans: Collection[str]) -> Commit:
        """The commit that carries out ``plans``."""
        ...

    def conflicts(self, current: Table, plans: Collection[str], manifests: Manifests) -> Mapping[str, FirnError]:
        """The conflicts of ``plans`` with ``current``, the table as it was just loaded, by plan id."""
        ...


@dataclass(frozen=True)
class Publication:
    """The outcome of one published plan.

    ``repeated`` is true when an earlier commit had published the plan, so that nothing has changed now; ``counts`` is
    None then. ``attempts`` is the number of tries of the commit, which all plans of a job share.
    """

    table: str
    plan_id: str
    snapshot_id: int
    attempts: int
    repeated: bool
    counts: RecordCounts | None


@dataclass(frozen=True)
class PublishResult:
    """The outcome of the plans of a job: published in one commit, or the reason why not, by plan id."""

    publications: tuple[Publication, ...] = ()
    failures: Mapping[str, FirnError] = field(default_factory=dict)


def commit(lake: Lake, target: Table, work: Publishable, counts: Mapping[str, RecordCounts]) -> PublishResult:
    """Carry out the plans whose ids are in ``counts`` with one commit; plans in conflict become failures.

    ``target`` is the table as the caller has loaded it. The parts of the commit that do not depend on the snapshot are
    prepared from this version.

    Raises UnavailableError when other commits come first for too long; OutcomeUnknownError when nobody can tell what
    became of the commit; RefusedError when the identifier now names another table.
    """
    if void_tombstones(target, work.table):
        drop_void_tombstones(lake, work.table)
    manifests = Manifests(target.io)
    plans = dict(counts)
    failures: dict[str, FirnError] = {}
    while plans:
        # A plan leaves a commit only after the commit is lost. The smaller commit is another one, with other ids.
        prepared = work.prepare(target, plans)
        try:
            settled = settle(lake, work.table, partial(_request, work, prepared, plans, manifests))
        except ConflictError as error:
            conflicts = error.by_plan if isinstance(error, _UnfitError) else dict.fromkeys(plans, error)
            failures |= conflicts
            plans = {plan_id: own for plan_id, own in plans.items() if plan_id not in conflicts}
            continue
        if settled.snapshot_id is None:
            # Another process carried out the same job first.
            before = published(settled.table, work.job_id)
            assert before is not None  # else there would be a request
            return repeated(settled.table, work.job_id, before, counts, settled.tries)
        return PublishResult(tuple(_publications(work.table, settled, plans)), failures)
    return PublishResult((), failures)


def _request(
    work: Publishable, prepared: Commit, plans: Collection[str], manifests: Manifests, current: Table
) -> CommitRequest | None:
    """The request that commits ``plans`` on ``current``; None if another process has carried out the job.

    Raises an error if plans are in conflict with ``current``.
    """
    if published(current, work.job_id) is not None:
        return None
    if void_tombstones(current, work.table):
        problem = f"table {work.table} began anew: another writer has replaced or removed records; plan again"
        raise _UnfitError(dict.fromkeys(plans, ConflictError(problem)))
    if conflicts := work.conflicts(current, plans, manifests):
        raise _UnfitError(conflicts)
    return prepared.request(current, manifests)


def _publications(table: str, settled: Settled, plans: Mapping[str, RecordCounts]) -> Iterator[Publication]:
    """The plans that the new snapshot published."""
    assert settled.snapshot_id is not None
    landed = plans
    if not settled.confirmed and (snapshot := settled.table.snapshot_by_id(settled.snapshot_id)):
        # The catalog has not confirmed any try, so only the snapshot tells which plans were published.
        landed = {plan.id: plan.counts for plan in plans_of(settled.table, snapshot)}
    for plan_id, own in landed.items():
        yield Publication(table, plan_id, settled.snapshot_id, settled.tries, repeated=False, counts=own)


def repeated(
    target: Table, job_id: str, snapshot_id: int, plans: Collection[str] = (), attempts: int = 0
) -> PublishResult:
    """The result of a job that snapshot ``snapshot_id`` carried out before; ``plans`` missing in it are failures."""
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
    """Some plans are in conflict with the snapshot to commit on; the others may be committed without them."""

    def __init__(self, by_plan: Mapping[str, FirnError]) -> None:
        super().__init__("; ".join(map(str, by_plan.values())))
        self.by_plan = by_plan
