"""The stage of a job: the contents of its folder, and the state of its plans.

The name of a stage is ``<namespace>.<table>/<job id>``. A stage is opened after its plans' inputs are confirmed. Its
folder has the plans; for each attempt at compacting them, the changes of the plans that succeeded; and the verdicts on
the changes of an attempt. Publishing removes the stage. Whoever deletes it deletes the plans first; without them,
nothing is published.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ValidationError
from pyiceberg.table import Table

from firnlake.errors import ConflictError, GoneError, RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import FrozenModel, Stored, files_in, job_folder, name_of, store
from firnlake.job.change import Change
from firnlake.job.documents import CHANGE, PLANS, VERDICTS, JobDocuments
from firnlake.job.failures import failure_of
from firnlake.job.job import Job, jobs_of
from firnlake.job.plan import Plan, stage_name, stage_parts

Verdicts = Mapping[str, dict[str, Any]]
"""Verdicts as documents, by plan id."""


class Changes(FrozenModel):
    """One attempt at compacting a job: ``changes`` has the changes, by plan id, of the plans that succeeded.

    ``schema_id`` and ``spec_id`` describe the table at the time of writing. ``core_ms`` is the core time that the
    attempt took, in milliseconds.
    """

    schema_id: int
    spec_id: int
    core_ms: int = 0
    changes: Mapping[str, dict[str, Any]]

    @classmethod
    def on(cls, table: Table, changes: Iterable[Change] = (), core_ms: int = 0) -> Self:
        """An attempt whose ``changes`` were written for ``table`` as it is."""
        return cls(
            schema_id=table.metadata.current_schema_id,
            spec_id=table.metadata.default_spec_id,
            core_ms=core_ms,
            changes={one.plan.id: one.model_dump(mode="json") for one in changes},
        )

    def fits(self, table: Table) -> bool:
        """True if what was written has the shape of ``table`` as it is."""
        return self.model_copy(update={"changes": {}, "core_ms": 0}) == Changes.on(table)

    def shaped(self, table: Table) -> Table:
        """``table`` with the schema and partition spec with which the files were written; for reading only.

        Raises RefusedError when the table no longer has this schema or partition spec.
        """
        if self.schema_id not in table.schemas() or self.spec_id not in table.specs():
            raise RefusedError(
                f"table {'.'.join(table.name())} no longer has schema {self.schema_id} or partition spec "
                f"{self.spec_id}, with which a staged result was written; plan again"
            )
        metadata = table.metadata.model_copy(
            update={"current_schema_id": self.schema_id, "default_spec_id": self.spec_id}
        )
        return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)


class _Judged(FrozenModel):
    """Verdicts on the changes of an attempt (C23), and the length in bytes and time of writing (epoch milliseconds) of
    each of its files, by name, before they were judged."""

    files: dict[str, tuple[int, int | None]]
    verdicts: dict[str, dict[str, Any]]


Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Stage:
    """A job's folder at the time of listing. Load the stage again to see changes by other processes."""

    identifier: str
    target: str
    job_id: str
    plans: tuple[Plan, ...]
    table: Table = field(repr=False)
    """The target table, with the schema and partition spec with which the attempt has written its files."""
    documents: JobDocuments = field(repr=False)
    attempt_id: str
    """Id of the attempt that counts; empty before the first one."""
    attempt: Changes | None = field(repr=False)
    changes: Mapping[str, Change] = field(repr=False)
    """The changes of this attempt, by plan id."""
    verdicts: Verdicts | None = field(repr=False)
    """The verdicts on these changes, by plan id; None before any of them is judged."""
    judged_files: Mapping[str, tuple[int, int | None]] = field(repr=False)
    """Length and time of writing of each file that was judged, by name."""

    @classmethod
    def load(cls, lake: Lake, identifier: str) -> "Stage":
        """The stage ``<namespace>.<table>/<job id>``.

        Raises RefusedError for a wrong name or an unreadable document, GoneError when there is no such stage.
        """
        return cls.on(lake, lake.table(stage_parts(identifier)[0]), identifier)

    @classmethod
    def on(cls, lake: Lake, table: Table, identifier: str) -> "Stage":
        """The stage ``identifier`` of ``table``, which is loaded; raises the same errors as ``load``."""
        target, job_id = stage_parts(identifier)
        with lake.reachable():
            return cls.of(target, JobDocuments.of(table, job_id))

    @classmethod
    def of(cls, target: str, documents: JobDocuments) -> "Stage":
        """The stage that ``documents`` describe, on table ``target``; raises GoneError without a document of plans."""
        identifier, table = stage_name(target, documents.job_id), documents.table
        plans = _there(identifier, documents.plans())
        attempts = {
            name: _parsed(Changes, one, f"stage {identifier}: its result")
            for name, one in documents.texts(CHANGE).items()
        }
        judged = {
            name: _parsed(_Judged, one, f"stage {identifier}: its verdicts")
            for name, one in documents.texts(VERDICTS).items()
        }
        # Several processes may have compacted the job. All processes choose alike, and a judged attempt comes first.
        chosen = min(attempts, key=lambda one: (one not in judged, -len(attempts[one].changes), one), default="")
        attempt, verdicts = attempts.get(chosen), judged.get(chosen)
        return cls(
            identifier=identifier,
            target=target,
            job_id=documents.job_id,
            plans=plans,
            table=attempt.shaped(table) if attempt else table,
            documents=documents,
            attempt_id=chosen,
            attempt=attempt,
            changes=_changes(identifier, plans, attempt),
            verdicts=verdicts.verdicts if verdicts else None,
            judged_files=verdicts.files if verdicts else {},
        )

    @classmethod
    def found(cls, lake: Lake, table: Table, identifier: str) -> "Stage | None":
        """The stage ``identifier`` of ``table``; None if there is none."""
        try:
            return cls.on(lake, table, identifier)
        except GoneError:
            return None

    @classmethod
    def open(cls, lake: Lake, job: Job, table: Table) -> "Stage":
        """The stage of ``job`` on ``table``: a new one, or the one that an earlier attempt has left (C25)."""
        documents = JobDocuments.of(table, job.id)
        documents.write_plans(job.plans)
        return cls.on(lake, table, job.stage)

    @property
    def title(self) -> str:
        """One-line title for people: the title of its job."""
        return Job(self.plans).title

    @property
    def state(self) -> str:
        """The state in a few words, with numbers when the plans of the job differ."""
        if self.verdicts is not None:
            passed = sum(self.passed(plan.id) for plan in self.plans)
            return {0: "failed", len(self.plans): "passed"}.get(passed, f"{passed} of {len(self.plans)} passed")
        if self.attempt is not None:
            done = len(self.changes)
            return "compacted" if done == len(self.plans) else f"{done} of {len(self.plans)} compacted"
        return "planned"

    def passed(self, plan_id: str) -> bool:
        """True when the plan's change has a passing verdict."""
        verdict = (self.verdicts or {}).get(plan_id)
        return verdict is not None and verdict.get("passed") is True

    def subject(self, plan: Plan) -> str:
        """The beginning of messages about ``plan``."""
        return f"stage {self.identifier}" + (f", plan {plan.id} ({plan.title})" if len(self.plans) > 1 else "")

    def refused(self, plan: Plan) -> RefusedError | None:
        """The error with which ``plan`` was refused; None if it was not."""
        failed = failure_of(self.documents.table, plan)
        return RefusedError(f"{self.subject(plan)} {failed.failure}") if failed else None

    def stored(self) -> Mapping[str, tuple[int, int | None]]:
        """Length and time of writing of the files now in the job's data folder, by name, which contains a UUID."""
        return {name_of(one.path): (one.bytes, one.written_ms) for one in self.files()}

    def files(self) -> list[Stored]:
        """Files now in the job's data folder."""
        return files_in(*store(self.table, job_folder(self.table, self.job_id)))

    def check_undisturbed(self) -> None:
        """Raise ConflictError when another process has begun to delete the stage."""
        found = {(one.kind, one.attempt) for one in JobDocuments.of(self.documents.table, self.job_id).found}
        # A job that was deleted and is made again has the same plans, but not the same attempts.
        is_whole = not self.attempt_id or (CHANGE, self.attempt_id) in found
        if (PLANS, "") not in found or not is_whole:
            raise ConflictError(f"stage {self.identifier} was discarded meanwhile; plan again")

    def record_changes(self, changes: Iterable[Change], core_ms: int = 0) -> None:
        """Store the changes of an attempt, as a new document."""
        attempt = Changes.on(self.documents.table, changes, core_ms)
        self.documents.write(CHANGE, attempt.model_dump_json(), uuid.uuid4().hex[:16])

    def record_verdicts(self, verdicts: Verdicts, files: Mapping[str, tuple[int, int | None]]) -> None:
        """Store the verdicts on these changes, by plan id, of which ``files`` were judged, as ``stored`` gives them."""
        if self.attempt is None:
            raise RefusedError(f"stage {self.identifier} is {self.state}; allowed: a compacted result")
        judged = _Judged(files=dict(files), verdicts=dict(verdicts))
        self.documents.write(VERDICTS, judged.model_dump_json(), self.attempt_id)


def open_stages(lake: Lake, plans: Iterable[Plan]) -> list[str]:
    """Open the stage of each job of ``plans``, so that later steps find the plans there; returns the stages' names."""
    jobs = jobs_of(plans)
    with lake.reachable():
        for job in jobs:
            JobDocuments.of(lake.table(job.table), job.id).write_plans(job.plans)
    return [job.stage for job in jobs]


def plans_in(lake: Lake, identifier: str) -> tuple[Plan, ...]:
    """The plans of the stage ``identifier``.

    Raises RefusedError for a wrong name or an unreadable document, GoneError when there is no such stage.
    """
    table, job_id = stage_parts(identifier)
    with lake.reachable():
        plans = JobDocuments.of(lake.table(table), job_id).plans()
    return _there(identifier, plans)


def stages_of(lake: Lake, identifier: str) -> list[str]:
    """Names of all stages of table ``identifier``, sorted."""
    with lake.reachable():
        return [stage_name(identifier, job_id) for job_id in JobDocuments.of_all(lake.table(identifier))]


def _there(identifier: str, plans: tuple[Plan, ...] | None) -> tuple[Plan, ...]:
    if plans is None:
        table, _ = stage_parts(identifier)
        raise GoneError(
            identifier, f"there is no stage {identifier}; allowed: a stage that `firn stages {table}` lists"
        )
    return plans


def _changes(identifier: str, plans: Iterable[Plan], attempt: Changes | None) -> Mapping[str, Change]:
    told = attempt.changes if attempt else {}
    try:
        return {one.id: Change.model_validate({**told[one.id], "plan": one}) for one in plans if one.id in told}
    except (ValueError, LookupError) as error:
        raise _unreadable(f"stage {identifier}: its result", error) from error


def _parsed(kind: type[Model], text: str, subject: str) -> Model:
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise _unreadable(subject, error) from error


def _unreadable(subject: str, error: Exception) -> RefusedError:
    reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
    return RefusedError(f"{subject} is not readable: {reason}; allowed: the document as Firn wrote it")
