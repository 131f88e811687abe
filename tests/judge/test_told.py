"""R15: whatever a plan or a result tells wrong, the judge notices it, or it can do no harm; a list says which and why.

The work follows the wrong plan honestly. A new field of a model that is in neither list fails a test.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import BaseModel

from firnlake.compact.compact import compact
from firnlake.door import OpenCatalog
from firnlake.engine.engine import Engine
from firnlake.errors import FirnError
from firnlake.iceberg.catalog import Lake
from firnlake.job.change import Change
from firnlake.job.plan import Plan
from firnlake.job.stage import CHANGE, Stage
from firnlake.table.history import Counts
from firnlake.table.segment import Segment
from firnlake.table.transactions import Marker
from firnlake.validate.validate import validate
from infra.foreign.files import on_disk
from infra.foreign.row_deletes import add, equality_file
from tests.support.machine import judging_late
from tests.support.row_deletes import delete
from tests.support.scenario import Scenario
from tests.support.topics import DAY, NOW, Topic, request, updates

MODELS = (Plan, Change, Counts)
NOBODY: Final = "nobody reads it to decide about a record"
SIZES: Final = "it decides how large the files are, and how many at a time"
HARMLESS: Mapping[str, str] = {
    "Plan.version": "there is one value",
    "Plan.id": "a plan whose id is not the digest of the rest is refused when it is read",
    "Plan.lane": "another lane is other work, which is judged by the promises of that lane",
    "Plan.reason": NOBODY,
    "Plan.inputs_per_segment": SIZES,
    "Plan.unread": "a search for a certificate reads every file, whatever its name",
    "Plan.segment_bytes": SIZES,
    "Plan.position_deletes_max": SIZES,
    "Plan.may_stay": "such a segment is searched all the same; the judge looks there for what had to change",
    "Change.plan": "it is the plan of the job, which no document of a change holds",
}


DECISIVE: Final = ("path", "level", "base_offset", "last_offset", "records", "bytes", "copies", "deletes")
"""The other facts of a segment decide when its plan is due, and what else a plan says."""


def _one_more(name: str, counts: Counts) -> int:
    return int(getattr(counts, name)) + 1


Wrong = tuple[str, Callable[[Any], object]]
WRONG: Mapping[str, Wrong] = {
    "Plan.table": ("full", lambda _: "db.other"),
    "Plan.snapshot_id": ("full", lambda plan: plan.snapshot_id + 1),
    "Plan.topic": ("full", lambda _: "payments"),
    "Plan.partition": ("full", lambda plan: plan.partition + 1),
    "Plan.now_ms": ("full", lambda plan: plan.now_ms + 10 * DAY),
    "Plan.inputs": ("full", lambda plan: plan.inputs[1:]),
    "Plan.removed_tombstones": ("full", lambda _: ()),
    "Plan.clean_below": ("full", lambda _: 1),
    "Plan.log_end_offset": ("full", lambda plan: plan.log_end_offset + 10),
    "Plan.kept_from": ("full", lambda _: 0),
    "Plan.sequence_number": ("full", lambda _: 1),
    "Plan.rules": ("full", lambda plan: plan.rules | {"delete.retention.ms": "0"}),
    "Plan.clock_behind_ms": ("full", lambda plan: plan.clock_behind_ms + DAY),
    "Plan.transactional": ("transactions", lambda _: False),
    "Plan.markers": ("transactions", lambda _: (Marker(1, 2, commit=False),)),
    "Plan.requests": ("erase", lambda _: ()),
    "Segment.path": ("full", lambda one: f"{one.path}.other"),
    "Segment.level": ("full", lambda one: one.level + 1),
    "Segment.base_offset": ("full", lambda one: one.base_offset + 1),
    "Segment.last_offset": ("full", lambda one: one.last_offset - 1),
    "Segment.records": ("full", lambda one: one.records + 1),
    "Segment.bytes": ("full", lambda one: one.bytes + 1),
    "Segment.copies": ("full", lambda _: 2),
    "Segment.deletes": ("full", lambda _: 7),
    "Change.counts": ("full", lambda own: own.counts.model_copy(update={"superseded": own.counts.superseded + 1})),
    "Change.fingerprint": ("full", lambda own: str(int(own.fingerprint) + 1)),
    "Change.in_place": ("erase", lambda _: frozenset()),
    "Change.merged": ("full", lambda _: ("deletes.parquet",)),
    "Change.kept": ("full", lambda _: ()),
    "Change.quarantined": ("full", lambda own: own.kept),
    "Change.removed_tombstones": ("full", lambda own: own.kept),
    "Change.deletes": ("convert", lambda _: ()),
    **{
        f"Counts.{name}": (
            "convert" if name == "deleted" else "full",
            partial(_one_more, name),
        )
        for name in Counts.model_fields
    },
}


def full(topic: Topic, _: Path) -> Plan:
    """Tail and head, a removed tombstone that returns, one that is stamped, and one that is found clean."""
    topic.land(updates("a=1", "a=", "b=1", "c=", "d=1", start=10))
    for age in (10, 8):
        topic.clean("full", NOW - age * DAY, force=True)
    topic.land(updates("a=0", "e=1"), updates("f=", "d=2", "g=1", start=20))
    return only(topic, "full")


def transactions(topic: Topic, folder: Path) -> Plan:
    """A committed transaction whose marker is outside the inputs."""
    scenario = Scenario(OpenCatalog(topic.lake, engine=topic.engine), folder)
    topic.table = scenario.name
    scenario.answer("log 1>a=1 b=1 | 1>commit")
    plan = only(topic, "full")
    return plan.model_copy(
        update={"inputs": plan.inputs[:1], "clean_below": 2, "markers": (Marker(1, 2, commit=True),)}
    ).sealed()


def erase(topic: Topic, _: Path) -> Plan:
    """A requested key that is also at the log end."""
    topic.land(updates("a=1", "b=1"), updates("c=1", "a=2", start=2))
    request(topic, b"a")
    return only(topic, "erase")


def convert(topic: Topic, _: Path) -> Plan:
    """A record that an equality delete hides, and one that a position delete hides."""
    topic.land(updates("a=1", "b=1", "c=1"), updates("a=2", "b=2", start=3))
    delete(topic, 2)
    table = topic.lake.table(topic.table)
    add(
        topic.lake, topic.table, [equality_file(table, ["key"], [(b"b",)], table.spec().spec_id, (topic.name, 0, None))]
    )
    return only(topic, "convert")


HISTORIES: Mapping[str, Callable[[Topic, Path], Plan]] = {
    one.__name__: one for one in (full, transactions, erase, convert)
}


def only(topic: Topic, lane: str) -> Plan:
    (plan,) = topic.plans(lane, NOW, force=True)
    return plan


@dataclass(frozen=True)
class Compaction:
    """A plan, and the documents of the stage into which it was compacted."""

    topic: Topic
    plan: Plan
    stage: Stage
    documents: Mapping[Path, bytes]

    def passes(self, change: Change | None = None) -> bool:
        """True if validation passes what was compacted, or another ``change`` in its place."""
        folder = on_disk(self.stage.location)
        for document in folder.iterdir():
            document.unlink()
        for path, content in self.documents.items():
            path.write_bytes(content)
        if change is not None:
            told = json.dumps({self.plan.id: change.model_dump(mode="json")})
            self.stage.write(CHANGE, told.encode(), self.stage.attempt_id)
        return passed(self.topic, self.stage.identifier)


@pytest.fixture(scope="module")
def compacted(lake: Lake, engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Compaction]:
    """A compaction of each of HISTORIES; nothing is published, so that one serves all tests."""

    @cache
    def made(history: str) -> Compaction:
        topic = Topic(lake, engine, f"db.told_{history}")
        plan = HISTORIES[history](topic, tmp_path_factory.mktemp(history))
        (done,) = compact(lake, [plan], engine)
        stage = Stage.load(lake, done.stage)
        folder = on_disk(stage.location)
        return Compaction(topic, plan, stage, {path: path.read_bytes() for path in folder.iterdir()})

    return made


def passed(topic: Topic, stage: str) -> bool:
    with judging_late(NOW + DAY):
        judged = validate(topic.lake, [stage], topic.engine)
    return bool(judged) and all(one.verdict and one.verdict.passed for one in judged)


def compacts_and_passes(topic: Topic, plan: Plan) -> bool:
    """True if ``plan`` is compacted, and validation passes what came out."""
    try:
        (done,) = compact(topic.lake, [plan], topic.engine)
        return done.error is None and passed(topic, done.stage)
    except FirnError:
        return False


def changed(model: BaseModel, place: str, value: Callable[[Any], object]) -> BaseModel:
    """``model`` with another value in the field ``place``, wherever a model below it has that field."""
    kind, _, name = place.partition(".")
    update: dict[str, object] = {}
    for field, held in model:
        if isinstance(held, BaseModel):
            update[field] = changed(held, place, value)
        elif isinstance(held, tuple) and held and isinstance(held[0], Segment) and kind == "Segment":
            update[field] = tuple(replace(one, **{name: value(one)}) for one in held)
        elif isinstance(held, Mapping):
            update[field] = {
                key: changed(one, place, value) if isinstance(one, BaseModel) else one for key, one in held.items()
            }
    if type(model).__name__ == kind:
        update[name] = value(model)
    return model.model_copy(update=update)


def test_r15_every_field_is_told_wrong_or_can_do_no_harm() -> None:
    fields = {f"{model.__name__}.{name}" for model in MODELS for name in model.model_fields}
    fields |= {f"Segment.{name}" for name in DECISIVE}
    assert WRONG.keys() | HARMLESS.keys() == fields
    assert not WRONG.keys() & HARMLESS.keys()


@pytest.mark.parametrize("history", HISTORIES)
def test_what_is_told_right_passes(compacted: Callable[[str], Compaction], history: str) -> None:
    assert compacted(history).passes()


@pytest.mark.parametrize("field", WRONG)
def test_r15_what_is_told_wrong_is_noticed(compacted: Callable[[str], Compaction], field: str) -> None:
    history, value = WRONG[field]
    right = compacted(history)
    if field.partition(".")[0] in ("Plan", "Segment"):
        wrong = changed(right.plan, field, value)
        assert isinstance(wrong, Plan)
        assert wrong != right.plan
        assert not compacts_and_passes(right.topic, wrong.sealed())
        return

    (change,) = right.stage.changes.values()
    wrong = changed(change, field, value)
    assert isinstance(wrong, Change)
    assert wrong != change
    assert not right.passes(wrong)
