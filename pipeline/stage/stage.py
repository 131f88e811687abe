"""A stage as the catalog holds it: plan, result, books and verdict, all of them properties or snapshots of one table.

States, each reached by one commit: inputs attached (their snapshot is tagged ``inputs``) → compacted (main has moved
past the tag, books recorded for it) → judged (a verdict recorded for that snapshot) → published or discarded (dropped).
One that was refused on the way is failed: it stays without its files and marks what must not be tried again (C20).
"""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from pipeline.errors import RefusedError
from pipeline.lake import Lake
from pipeline.lake.columns import Columns
from pipeline.plan import Failure, Plan
from pipeline.plan.failure import FAILURE_PROPERTY, PLAN_PROPERTY
from pipeline.segments.manifests import Manifests
from pipeline.stage.accounting import Accounting

INPUTS = "inputs"
"""Tag of the stage whose content is exactly the plan's input segments."""

REWRITTEN = "rewritten"
"""Tag of the inputs without those segments of the tail that stay where they are; missing when none does."""

QUARANTINED = -1
"""Level of staged records that go to the quarantine table instead of the topic table (C5)."""

BURIED = -2
"""Level of removed tombstones, in a stage and in ``<table>__tombstones`` (C9)."""

BOOKS_PROPERTY = "firn-accounting"
VERDICT_PROPERTY = "firn-verdict"


class _Recorded(BaseModel):
    """What a room found out about one result: it says nothing about any other (C23)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    result: int
    content: dict[str, Any]


@dataclass(frozen=True)
class SortedFiles:
    """Data files of a result: what stays in the topic table, and what goes to the tables beside it."""

    kept: list[DataFile]
    quarantined: list[DataFile]
    buried: list[DataFile]


@dataclass(frozen=True)
class Stage:
    """One stage table, loaded. Reload it to see what another process did."""

    identifier: str
    plan: Plan
    table: Table

    @classmethod
    def load(cls, lake: Lake, identifier: str) -> "Stage":
        """The stage ``identifier``; RefusedError when there is no such table or it is not a stage."""
        table = lake.table(identifier)
        text = table.properties.get(PLAN_PROPERTY)
        if text is None:
            raise RefusedError(f"table {identifier} is not a stage: it has no property {PLAN_PROPERTY}")
        return cls(identifier, Plan.parse(text, f"of stage {identifier}"), table)

    @property
    def has_inputs(self) -> bool:
        """Whether the plan's inputs are attached."""
        return INPUTS in self.table.metadata.refs

    @property
    def result(self) -> int | None:
        """Snapshot id of what the plan produced; None before compaction."""
        head = self.table.metadata.current_snapshot_id
        tagged = {ref.snapshot_id for name, ref in self.table.metadata.refs.items() if name in (INPUTS, REWRITTEN)}
        return head if tagged and head not in tagged else None

    @property
    def rewritten(self) -> str:
        """The tag of the segments that the result replaces; the other inputs stay in the target."""
        return REWRITTEN if REWRITTEN in self.table.metadata.refs else INPUTS

    @property
    def accounting(self) -> Accounting | None:
        """The books of the current result; None when there are none, or they belong to an older result."""
        found = self._recorded(BOOKS_PROPERTY)
        return Accounting.model_validate(found) if found is not None else None

    @property
    def verdict(self) -> dict[str, Any] | None:
        """The verdict on the current result; None when there is none, or it belongs to an older result."""
        return self._recorded(VERDICT_PROPERTY)

    @property
    def failure(self) -> Failure | None:
        """Why the plan is not tried again; None while nothing was refused."""
        text = self.table.properties.get(FAILURE_PROPERTY)
        return Failure.parse(text, self.identifier) if text is not None else None

    def check(self) -> None:
        """Refuse a failed stage, with the reason it failed for."""
        if self.failure:
            raise RefusedError(f"stage {self.identifier} {self.failure}")

    @property
    def state(self) -> str:
        """One word for people."""
        if self.failure:
            return "failed"
        if self.verdict is not None:
            return "passed" if self.verdict["passed"] else "failed"
        if self.accounting is not None:
            return "compacted"
        return "inputs attached" if self.has_inputs else "empty"

    def record(self, lake: Lake, name: str, content: dict[str, Any]) -> "Stage":
        """Store ``content`` as property ``name``, tied to the current result; returns the stage reloaded."""
        if self.result is None:
            raise RefusedError(f"stage {self.identifier} is {self.state}; allowed: a result to record {name} for")
        bound = _Recorded(result=self.result, content=content)
        lake.set_properties(self.identifier, {name: bound.model_dump_json()})
        return Stage.load(lake, self.identifier)

    def replaced(self) -> list[str]:
        """Paths of the plan's inputs that the result replaces, in the plan's order; the others stay in the target."""
        tagged = self.table.snapshot_by_name(self.rewritten)
        found = {file.file_path for file in self._files_of(tagged)} if tagged else set()
        return [segment.path for segment in self.plan.inputs if segment.path in found]

    def files(self) -> list[DataFile]:
        """The data files of the result, with full metrics; empty when nothing was left."""
        snapshot = self.table.current_snapshot()
        if snapshot is None or self.result is None:
            return []
        return self._files_of(snapshot)

    def _files_of(self, snapshot: Snapshot) -> list[DataFile]:
        manifests = [
            manifest for manifest in snapshot.manifests(self.table.io) if manifest.content == ManifestContent.DATA
        ]
        return [entry.data_file for entry in Manifests(self.table.io).live(manifests)]

    def sorted_files(self) -> "SortedFiles":
        """The result's data files by where they go when the stage is published."""
        level_field = Columns.of(self.table, self.identifier).level_field(self.table)
        found = SortedFiles([], [], [])
        for file in self.files():
            match file.partition[level_field]:
                case level if level == QUARANTINED:
                    found.quarantined.append(file)
                case level if level == BURIED:
                    found.buried.append(file)
                case _:
                    found.kept.append(file)
        return found

    def _recorded(self, name: str) -> dict[str, Any] | None:
        text = self.table.properties.get(name)
        if text is None or self.result is None:
            return None
        try:
            recorded = _Recorded.model_validate_json(text)
        except ValidationError as error:
            raise RefusedError(
                f"stage {self.identifier}: property {name} is not readable: {error.errors()[0]['msg']}"
            ) from error
        return recorded.content if recorded.result == self.result else None
