"""A stage as the catalog holds it: plans, result, record counts and verdicts, all properties or snapshots of a table.

States, each reached by one commit: inputs attached (their snapshot is tagged ``inputs``) → compacted (main has moved
past the tags, books recorded for it) → judged (verdicts recorded for that snapshot) → published or discarded (dropped).
A plan that was refused on the way is failed: its stage, or one of its own where it shared the job's with others, stays
without files and marks what must not be tried again (C20).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table

from pipeline.errors import MetadataLostError, RefusedError
from pipeline.lake import Lake
from pipeline.lake.columns import Columns
from pipeline.lake.documents import Document
from pipeline.lake.topic_partition import TopicPartition
from pipeline.plan import Failure, Job, Plan
from pipeline.plan.failure import FAILURE_PROPERTY, PLAN_PROPERTY
from pipeline.plan.plan import STAGE_INFIX
from pipeline.segments.manifests import Manifests
from pipeline.stage.accounting import Books

INPUTS = "inputs"
"""Tag of the stage whose content is exactly the input segments of its plans."""

REWRITTEN = "rewritten"
"""Tag of the inputs without those segments of the tail that stay where they are; missing when none does."""

LEFT_OUT = "firn.left-out"
"""Property of the summary of the tagged snapshot: why plans of the job were left out, by plan id (JSON)."""

QUARANTINED = -1
"""Level of staged records that go to the quarantine table instead of the topic table (C5)."""

BURIED = -2
"""Level of removed tombstones, in a stage and in ``<table>__tombstones`` (C9)."""

PLANS_PROPERTY = "firn-plans"
"""Reference of the document with the plans of a job; a single plan is a property itself."""

SPLIT_PROPERTY = "firn-split"
"""Present once the plans of a job went on in stages of their own."""

BOOKS_PROPERTY = "firn-accounting"
VERDICT_PROPERTY = "firn-verdict"

MAX_PROPERTY_BYTES = 32_768
"""What is longer is written beside the stage's metadata, and the property refers to it."""

_PLANS = TypeAdapter(tuple[Plan, ...])
_LEFT_OUT = TypeAdapter(dict[str, str])
_CONTENT = TypeAdapter(dict[str, Any])
_VERDICTS = TypeAdapter(dict[str, dict[str, Any]])


class _Recorded(BaseModel):
    """What a room found out about one result: it says nothing about any other (C23)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    result: int
    content: dict[str, Any] | None = None
    document: Document | None = None


@dataclass(frozen=True)
class SortedFiles:
    """Data files of a plan's result: what stays in the topic table, and what goes to the tables beside it."""

    kept: list[DataFile]
    quarantined: list[DataFile]
    buried: list[DataFile]

    @property
    def all(self) -> list[DataFile]:
        return [*self.kept, *self.quarantined, *self.buried]


@dataclass(frozen=True)
class Stage:
    """One stage table, loaded. Reload it to see what another process did.

    ``plans`` are those whose inputs are attached, or will be; ``left_out`` says of the others of the job why not.
    """

    identifier: str
    plans: tuple[Plan, ...]
    left_out: Mapping[str, str]
    table: Table

    @classmethod
    def load(cls, lake: Lake, identifier: str) -> "Stage":
        """The stage ``identifier``; RefusedError when there is no such table or it is not a stage, MetadataLostError
        when it can't be read any more."""
        table = lake.table(identifier)
        left_out = _left_out(table, identifier)
        plans = tuple(plan for plan in _plans(table, identifier) if plan.id not in left_out)
        return cls(identifier, plans, left_out, table)

    @classmethod
    def without_plans(cls, lake: Lake, identifier: str) -> "Stage":
        """What is left of a stage whose plans are lost: enough to clear it away."""
        return cls(identifier, (), {}, lake.table(identifier))

    @property
    def job_id(self) -> str:
        """Id of the job that the stage was opened for."""
        return self.identifier.rpartition(STAGE_INFIX)[2]

    @property
    def target(self) -> str:
        """Identifier of the table that the result is for."""
        return self.identifier.rpartition(STAGE_INFIX)[0]

    @property
    def title(self) -> str:
        """One line for people: what and where."""
        return Job(self.plans).title

    @property
    def plan(self) -> Plan:
        """The only plan, as of every stage that marks a failure; RefusedError when the stage is shared."""
        if len(self.plans) != 1:
            raise RefusedError(f"stage {self.identifier} is of {len(self.plans)} plans; allowed: one")
        return self.plans[0]

    @property
    def has_inputs(self) -> bool:
        """Whether the inputs are attached."""
        return INPUTS in self.table.metadata.refs

    @property
    def result(self) -> int | None:
        """Snapshot id of what the job produced; None before compaction."""
        head = self.table.metadata.current_snapshot_id
        tagged = {ref.snapshot_id for name, ref in self.table.metadata.refs.items() if name in (INPUTS, REWRITTEN)}
        return head if tagged and head not in tagged else None

    @property
    def rewritten(self) -> str:
        """The tag of the segments that the result replaces; the other inputs stay in the target."""
        return REWRITTEN if REWRITTEN in self.table.metadata.refs else INPUTS

    @cached_property
    def books(self) -> Books | None:
        """The books of the current result; None when there are none, or they belong to an older result."""
        found = self._recorded(BOOKS_PROPERTY)
        try:
            return Books.model_validate(found) if found is not None else None
        except ValidationError as error:
            raise self._unreadable(BOOKS_PROPERTY, error) from error

    @cached_property
    def verdicts(self) -> Mapping[str, dict[str, Any]] | None:
        """The verdicts on the current result by plan id; None when there are none, or they belong to an older one."""
        found = self._recorded(VERDICT_PROPERTY)
        try:
            return _VERDICTS.validate_python(found) if found is not None else None
        except ValidationError as error:
            raise self._unreadable(VERDICT_PROPERTY, error) from error

    def passed(self, plan_id: str) -> bool:
        """Whether the plan's part of the current result has a passing verdict."""
        verdict = (self.verdicts or {}).get(plan_id)
        return verdict is not None and verdict.get("passed") is True

    @property
    def failure(self) -> Failure | None:
        """Why the stage's only plan is not tried again; None while nothing was refused."""
        text = self.table.properties.get(FAILURE_PROPERTY)
        return Failure.parse(text, self.identifier) if text is not None else None

    @property
    def is_split(self) -> bool:
        """Whether the plans went on in stages of their own."""
        return SPLIT_PROPERTY in self.table.properties

    def check(self) -> None:
        """Refuse a failed stage, with the reason it failed for."""
        if self.failure:
            raise RefusedError(f"stage {self.identifier} {self.failure}")

    @property
    def state(self) -> str:
        """A word or a few for people; with figures where the plans of a job differ."""
        if self.failure:
            return "failed"
        if self.is_split:
            return "split"
        if self.verdicts is not None:
            passed = sum(self.passed(plan.id) for plan in self.plans)
            return {0: "failed", len(self.plans): "passed"}.get(passed, f"{passed} of {len(self.plans)} passed")
        if self.books is not None:
            kept = len(self.books.plans)
            return "compacted" if kept == len(self.plans) else f"{kept} of {len(self.plans)} compacted"
        return "inputs attached" if self.has_inputs else "empty"

    def record_books(self, lake: Lake, books: Books) -> "Stage":
        """Store the books of the current result; returns the stage reloaded."""
        return self._record(lake, BOOKS_PROPERTY, books.model_dump(mode="json"))

    def record_verdicts(self, lake: Lake, verdicts: Mapping[str, dict[str, Any]]) -> "Stage":
        """Store the verdicts on the current result, by plan id; returns the stage reloaded."""
        return self._record(lake, VERDICT_PROPERTY, dict(verdicts))

    def inputs(self) -> list[DataFile]:
        """The data files that the plans take, removed tombstones that may come back included; as often as listed."""
        tag = self.table.metadata.refs.get(INPUTS)
        return self._files(tag.snapshot_id) if tag else []

    def content(self) -> list[DataFile]:
        """The data files of the stage's current snapshot, whatever they are."""
        head = self.table.metadata.current_snapshot_id
        return self._files(head) if head is not None else []

    def files(self) -> list[DataFile]:
        """The data files of the result, with full metrics; empty when nothing was left."""
        return self._files(self.result) if self.result is not None else []

    def sorted_files(self) -> Mapping[str, SortedFiles]:
        """The result's data files by plan id and by where they go when the stage is published.

        A file is of the plan of its topic partition. RefusedError when it is of none.
        """
        columns = Columns.of(self.table, self.identifier)
        level_field = columns.level_field(self.table)
        plans = {plan.topic_partition: plan.id for plan in self.plans}
        found = {plan.id: SortedFiles([], [], []) for plan in self.plans}
        for file in self.files():
            owner = TopicPartition(*columns.owner(self.table, file))
            if owner not in plans:
                raise RefusedError(
                    f"stage {self.identifier}: {file.file_path} holds records of {owner}; allowed: those of its plans"
                )
            own = found[plans[owner]]
            match file.partition[level_field]:
                case level if level == QUARANTINED:
                    own.quarantined.append(file)
                case level if level == BURIED:
                    own.buried.append(file)
                case _:
                    own.kept.append(file)
        return found

    def replaced(self) -> Mapping[str, Sequence[str]]:
        """Paths of the input segments that the result replaces, by plan id."""
        if self.rewritten == INPUTS:
            return {plan.id: [segment.path for segment in plan.inputs] for plan in self.plans}
        paths = {file.file_path for file in self._files(self.table.metadata.refs[REWRITTEN].snapshot_id)}
        return {plan.id: [one.path for one in plan.inputs if one.path in paths] for plan in self.plans}

    def _files(self, snapshot_id: int) -> list[DataFile]:
        snapshot = self.table.snapshot_by_id(snapshot_id)
        assert snapshot is not None  # a ref of the table names it
        manifests = [
            manifest for manifest in snapshot.manifests(self.table.io) if manifest.content == ManifestContent.DATA
        ]
        return [entry.data_file for entry in Manifests(self.table.io).live(manifests)]

    def _record(self, lake: Lake, name: str, content: dict[str, Any]) -> "Stage":
        """Store ``content`` as property ``name``, tied to the current result."""
        if self.result is None:
            raise RefusedError(f"stage {self.identifier} is {self.state}; allowed: a result to record {name} for")
        text = json.dumps(content)
        long = len(text) > MAX_PROPERTY_BYTES
        document = Document.write(self.table, self.table.location(), name, text) if long else None
        bound = _Recorded(result=self.result, content=None if long else content, document=document)
        lake.set_properties(self.identifier, {name: bound.model_dump_json(exclude_none=True)})
        return replace(self, table=lake.table(self.identifier))

    def _recorded(self, name: str) -> dict[str, Any] | None:
        text = self.table.properties.get(name)
        if text is None or self.result is None:
            return None
        try:
            recorded = _Recorded.model_validate_json(text)
            if recorded.result != self.result:
                return None
            if recorded.document is None:
                return recorded.content
            subject = f"stage {self.identifier}: property {name}"
            return _CONTENT.validate_json(recorded.document.read(self.table, subject))
        except ValidationError as error:
            raise self._unreadable(name, error) from error

    def _unreadable(self, name: str, error: ValidationError) -> RefusedError:
        return _not_readable(f"stage {self.identifier}: property {name}", error)


def plan_properties(job: Job, target: Table, folder: str) -> dict[str, str]:
    """The property of a stage at ``folder`` that says what its plans are; those of several go into a document."""
    if len(job) == 1:
        return {PLAN_PROPERTY: job.plans[0].model_dump_json()}
    text = f"[{','.join(plan.model_dump_json() for plan in job)}]"
    return {PLANS_PROPERTY: Document.write(target, folder, PLANS_PROPERTY, text).model_dump_json()}


def _plans(table: Table, identifier: str) -> tuple[Plan, ...]:
    single, several = table.properties.get(PLAN_PROPERTY), table.properties.get(PLANS_PROPERTY)
    source = f"of stage {identifier}"
    if single is not None:
        return (Plan.parse(single, source),)
    if several is None:
        raise RefusedError(f"table {identifier} is not a stage: it has no property {PLAN_PROPERTY}")
    subject = f"stage {identifier}: property {PLANS_PROPERTY}"
    try:
        text = Document.parse(several, subject).read(table, subject)
    except RefusedError as error:
        raise MetadataLostError(identifier, str(error)) from error
    # What was read is what was written, so the plans' ids need no second look.
    try:
        return _PLANS.validate_json(text)
    except ValidationError as error:
        raise _not_readable(subject, error) from error


def _left_out(table: Table, identifier: str) -> Mapping[str, str]:
    tag = table.metadata.refs.get(INPUTS)
    snapshot = table.snapshot_by_id(tag.snapshot_id) if tag else None
    said = snapshot.summary.get(LEFT_OUT) if snapshot and snapshot.summary else None
    try:
        return _LEFT_OUT.validate_json(said) if said else {}
    except ValidationError as error:
        raise _not_readable(f"stage {identifier}: {LEFT_OUT} of its inputs", error) from error


def _not_readable(subject: str, error: ValidationError) -> RefusedError:
    return RefusedError(f"{subject} is not readable: {error.errors()[0]['msg']}; allowed: as Firn wrote it")
