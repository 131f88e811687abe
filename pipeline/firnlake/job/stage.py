"""The stage of a job: the contents of its folder, and the state of its plans.

The name of a stage is ``<namespace>.<table>/<job id>``. A stage is opened after its plans' inputs are confirmed.
Its documents give the state: first plans, then a result, then verdicts on that result; publishing removes the stage. A
document ``failure`` records that the only plan was refused and must not be retried on the same segments (C20); a
document ``abandoned`` records that the deletion of the stage has begun. With either document, nothing is published.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from firnlake.errors import ConflictError, GoneError, RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.deletes import FileDeletes
from firnlake.iceberg.files import FrozenModel, Stored, files_in, job_folder, store
from firnlake.job.documents import JobDocuments
from firnlake.job.failures import ABANDONED, FAILURE, PLANS, Failure, plans_in, plans_text
from firnlake.job.inputs import planned_inputs
from firnlake.job.job import Job
from firnlake.job.plan import STAGED, Plan, stage_name, stage_parts
from firnlake.job.result import PlanFiles, PlanResult, StagedResult, files_by_plan

RESULT: Final = "result"
VERDICTS: Final = "verdicts"
SPLIT: Final = "split"
"""Kind of the document that splits a failed job into one stage per plan, because one plan may be to blame."""

KINDS: Final = (PLANS, RESULT, VERDICTS, SPLIT, FAILURE, ABANDONED)
"""Kinds of documents in the order of deletion: plans first, as no stage is published without plans; the mark last."""

Verdicts = Mapping[str, dict[str, Any]]
"""Verdicts as documents, by plan id."""


class _Verdicts(FrozenModel):
    """Verdicts on the result with the digest ``result`` (C23), and on no other."""

    result: str
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
    """The target table, with the schema and partition spec with which the result was written."""
    documents: JobDocuments = field(repr=False)
    opening: str
    """Digest of the document of plans. A job that was deleted and opened again has another digest, and results of the
    former opening no longer count."""
    result: StagedResult | None = field(repr=False)
    result_digest: str | None
    """SHA-256 (hex) of the result document, which verdicts name (C23)."""
    verdicts: Verdicts | None = field(repr=False)
    """The verdicts on the result, by plan id; None before the result is judged."""
    failure: Failure | None
    """Failure of the only plan, which is not retried; None when no plan was refused."""

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
        openings = documents.texts(PLANS)
        plans = plans_in(openings, identifier)
        if plans is None:
            raise GoneError(
                identifier, f"there is no stage {identifier}; allowed: a stage that `firn stages {target}` lists"
            )
        verdicts = _verdicts(documents, identifier)
        digest, result = _result(documents, identifier, verdicts, openings)
        failures = documents.texts(FAILURE)
        return cls(
            identifier=identifier,
            target=target,
            job_id=documents.job_id,
            plans=tuple(plan for plan in plans if result is None or plan.id not in result.conflicts),
            table=result.shaped(table) if result else table,
            documents=documents,
            opening=result.opening if result else next(iter(openings)),
            result=result,
            result_digest=digest,
            verdicts=verdicts.get(digest) if digest else None,
            failure=Failure.parse(next(iter(failures.values())), identifier) if failures else None,
        )

    @property
    def title(self) -> str:
        """One-line title for people: the title of a job of the remaining plans, or the job's id if no plan remains."""
        return Job(self.plans).title if self.plans else f"job {self.job_id}"

    @property
    def conflicts(self) -> Mapping[str, str]:
        """Reasons why plans of the job must be made again, by plan id."""
        return self.result.conflicts if self.result else {}

    @property
    def is_split(self) -> bool:
        """True when each plan continues in its own stage."""
        return SPLIT in self.documents.kinds

    @property
    def is_abandoned(self) -> bool:
        """True when deletion of the stage has begun."""
        return ABANDONED in self.documents.kinds

    @property
    def state(self) -> str:
        """The state in a few words, with numbers when the plans of the job differ."""
        if self.failure:
            return "failed"
        if self.is_abandoned:
            return "abandoned"
        if self.is_split:
            return "split"
        if self.verdicts is not None:
            passed = sum(self.passed(plan.id) for plan in self.plans)
            return {0: "failed", len(self.plans): "passed"}.get(passed, f"{passed} of {len(self.plans)} passed")
        if self.result is not None:
            done = len(self.result.plans)
            return "compacted" if done == len(self.plans) else f"{done} of {len(self.plans)} compacted"
        return "planned"

    def passed(self, plan_id: str) -> bool:
        """True when the plan's part of the result has a passing verdict."""
        verdict = (self.verdicts or {}).get(plan_id)
        return verdict is not None and verdict.get("passed") is True

    def of_plan(self, plan_id: str) -> PlanResult | None:
        """The plan's result; None when it has none."""
        return self.result.plans.get(plan_id) if self.result else None

    def check(self) -> None:
        """Raise RefusedError with the reason if the stage has failed."""
        if self.failure:
            raise RefusedError(f"stage {self.identifier} {self.failure}")

    @cached_property
    def files(self) -> Mapping[str, PlanFiles]:
        """The files of the result by plan id; raises RefusedError when their manifests are gone or were changed."""
        try:
            files = self.result.files(self.table) if self.result else []
            deletes = self.result.delete_files(self.table) if self.result else []
        except FileNotFoundError as error:
            raise RefusedError(
                f"stage {self.identifier}: its list of files is gone ({error}); discard it and plan again"
            ) from error
        return files_by_plan(self.table, f"stage {self.identifier}", self.plans, files, deletes)

    def replaced(self, plan: Plan) -> list[str]:
        """Paths of the input segments that the plan's result replaces; the other inputs stay in place."""
        own = self.of_plan(plan.id)
        in_place = frozenset(own.in_place) if own else frozenset()
        return [segment.path for segment in plan.inputs if segment.path not in in_place]

    def replaced_beside(self, plan: Plan) -> list[str]:
        """Paths of segments of removed tombstones that a copying lane replaces; other lanes only read them."""
        own = self.of_plan(plan.id)
        if not plan.lane.traits.copies or own is None:
            return []
        return [segment.path for segment in plan.removed_tombstones if segment.path not in own.in_place]

    def stored(self) -> Mapping[str, Stored]:
        """Files now in the job's data folder, by name; names are unique because they contain a UUID."""
        files = files_in(*store(self.table, job_folder(self.table, self.job_id)))
        return {file.path.rpartition("/")[2]: file for file in files}

    def check_undisturbed(self) -> None:
        """Raise ConflictError when another process has begun to delete the stage, or has marked it as failed."""
        now = JobDocuments.of(self.documents.table, self.job_id)
        openings = {one.digest for one in now.found if one.kind == PLANS}
        if self.opening not in openings or not now.kinds.isdisjoint((ABANDONED, FAILURE)):
            raise ConflictError(f"stage {self.identifier} was discarded meanwhile; plan again")

    def record_result(self, result: StagedResult) -> None:
        """Store the result of one try. Raises RefusedError when its record counts don't balance."""
        for plan_id, own in result.plans.items():
            own.counts.check(f"stage {self.identifier}, plan {plan_id}")
        self.documents.write(RESULT, result.model_dump_json())

    def record_verdicts(self, verdicts: Verdicts) -> None:
        """Store the verdicts on this result, by plan id."""
        if self.result_digest is None:
            raise RefusedError(f"stage {self.identifier} is {self.state}; allowed: a compacted result")
        judged = _Verdicts(result=self.result_digest, verdicts=dict(verdicts))
        self.documents.write(VERDICTS, judged.model_dump_json())

    def record_split(self) -> None:
        """Record that each plan continues in its own stage."""
        self.documents.write(SPLIT, json.dumps({"plans": [plan.id for plan in self.plans]}))


def stages_of(lake: Lake, identifier: str) -> list[str]:
    """Names of all stages of table ``identifier``, sorted."""
    with lake.reachable():
        return [stage_name(identifier, job_id) for job_id in JobDocuments.of_all(lake.table(identifier))]


def parts_of(lake: Lake, identifier: str) -> list[str]:
    """The stages that hold the results of stage ``identifier``: this stage, or the stages of its plans if it is split.

    If the stage can't be loaded, the result is this stage alone; the step that processes it reports the error.
    """
    try:
        stage = Stage.load(lake, identifier)
    except RefusedError:
        return [identifier]
    return [plan.stage for plan in stage.plans] if stage.is_split else [identifier]


def missing(files: Iterable[str], lengths: Mapping[str, int], there: Mapping[str, Stored]) -> list[str]:
    """Those paths in ``files`` whose file name is not in ``there``, or has another length there than in ``lengths``."""
    return [
        path for path in files if (held := there.get(path.rpartition("/")[2])) is None or held.bytes != lengths[path]
    ]


def _result(
    documents: JobDocuments, identifier: str, judged: Mapping[str, Verdicts], openings: Collection[str]
) -> tuple[str | None, StagedResult | None]:
    """The digest of the result that counts, and this result; both None if there is no result on one of ``openings``.

    Several processes may have compacted the job. In the order of digests, the first judged result counts, or the first
    result if none is judged, so that all processes make the same choice.
    """
    subject = f"stage {identifier}: its result"
    parsed = {digest: _parsed(StagedResult, text, subject) for digest, text in documents.texts(RESULT).items()}
    results = {digest: one for digest, one in parsed.items() if one.opening in openings}
    chosen = next((digest for digest in results if digest in judged), next(iter(results), None))
    return (chosen, results[chosen]) if chosen else (None, None)


def _verdicts(documents: JobDocuments, identifier: str) -> Mapping[str, Verdicts]:
    """The verdicts, by digest of the judged result."""
    by_result: dict[str, Verdicts] = {}
    for text in documents.texts(VERDICTS).values():
        one = _parsed(_Verdicts, text, f"stage {identifier}: its verdicts")
        by_result[one.result] = {**one.verdicts, **by_result.get(one.result, {})}
    return by_result


def _parsed(kind: type[Model], text: str, subject: str) -> Model:
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise RefusedError(
            f"{subject} is not readable: {error.errors()[0]['msg']}; allowed: the document as Firn wrote it"
        ) from error


@dataclass(frozen=True)
class OpenedStage:
    """A stage to compact, the input files of its viable plans by path, and the conflicts of its other plans by id.

    ``deletes`` are the row-level deletes that apply to an input file, by its path.
    """

    stage: Stage
    files: Mapping[str, DataFile]
    conflicts: Mapping[str, ConflictError]
    deletes: Mapping[str, FileDeletes] = field(default_factory=dict)


def open_stage(lake: Lake, job: Job) -> OpenedStage:
    """Open the stage of ``job``, or take over the stage that an earlier try left behind (C25).

    Plans that must be made again, because an input is no longer live in the target or other row-level deletes apply to
    it, have no files. Raises ConflictError when no plan is left; RefusedError when the plans are for another table, or
    when the results of their lane are not staged.
    """
    for plan in job:
        plan.of_lane(*STAGED)
    target = lake.table(job.table)
    documents = JobDocuments.of(target, job.id)
    is_open = bool(documents.texts(PLANS))
    if is_open:
        stage = Stage.of(job.table, documents)
        if stage.result or stage.is_split:
            # A later change of the table may be in conflict with some of the plans; publishing checks each plan.
            return OpenedStage(stage, {}, {})
    checked = planned_inputs(target, job.plans)
    if not checked.files:
        raise next(iter(checked.conflicts.values()))
    if not is_open:
        documents.write(PLANS, plans_text(job.plans))
    files = {file.file_path: file for own in checked.files.values() for file in own}
    return OpenedStage(Stage.load(lake, job.stage), files, checked.conflicts, checked.deletes)
