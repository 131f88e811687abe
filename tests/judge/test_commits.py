"""C1, C20, C23: what a stage holds is judged before it is published, and what a commit holds by `firn verify`."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from firnlake.engine.engine import Engine, LocalEngine
from firnlake.iceberg.branches import ancestors, firn_properties
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import BranchChange, Commit
from firnlake.job.stage import Stage
from firnlake.lanes import Lane
from firnlake.lanes.answer import Waits, Work
from firnlake.publish import publish
from firnlake.table.state import State
from firnlake.validate import validate as judging
from firnlake.validate.basis import Committed
from firnlake.validate.validate import judge, validate
from infra.foreign.files import on_disk
from tests.support.lakes import Row, commit
from tests.support.row_deletes import data_file
from tests.support.scenario import Scenario
from tests.support.topics import NOW, Topic, request, updates

ERASE = "firn erase {table} --now {now} --key "
IN_PLACE = " | ".join(f"k{at}={'x' * 500} l{at}={'y' * 500} m{at}={'z' * 500}" for at in range(4))
HISTORIES = {
    "superseded 3": ["land a=1 b=1 a=2 | c= b= d=1", "merge!", "land d=2 | e=1", "merge!", "clean!"],
    "restored 1": [
        *("create delete.retention.ms=1000", "land a=1 b=1 | a=@5 | z=1@9", "full!", "land y=1", "at 1d"),
        *("full!", "land a=late@3", "at 2d", "full!"),
    ],
    "quarantined 1": ["create segment.bytes=1024", f"land {IN_PLACE}", "full!", "land k1=new -=x end=", "full!"],
    "erased 2": [
        *("land a=1 b=1 c=1", "full!", "land a=2 d=1 | b=2 | a=3", "merge!", "land e=1"),
        *(f"{ERASE}a", "erase!", f"{ERASE}b", "erase!"),
    ],
    "0 to 0": [
        *("create delete.retention.ms=0", "land a=1 a= b= | c=1", "full!", "at 1ms", "full!", f"{ERASE}a", "erase!"),
    ],
    "erased 1": ["land a=1 b=1 a=2 c=1 | z=1@9", "delete 0", f"{ERASE}a", "erase!"],
}
"""By what the last commit took: merges and a cleaning, a late record, segments in place, and erasures of every kind."""


AT_NIGHT = {"superseded 3", "restored 1", "0 to 0", "erased 1"}


@pytest.mark.parametrize(
    "went", [pytest.param(one, marks=[pytest.mark.nightly] if one in AT_NIGHT else []) for one in HISTORIES]
)
def test_c9_c16_c30_every_commit_is_proved_by_its_files_alone(scenario: Scenario, went: str) -> None:
    """Also later, when there are newer requests."""
    commits: list[tuple[str, int | None]] = []
    for line in HISTORIES[went]:
        said = scenario.answer(line)
        if line.endswith("!"):
            assert not [one for one in said if "segments, " not in one], said
            commits.append((line.removesuffix("!"), scenario.loaded().metadata.current_snapshot_id))
    assert went in said[0]
    for lane, snapshot_id in commits:
        (found,) = scenario.table.verify(snapshot_id)
        assert (found.claim.lane, found.passed) == (lane, True)
    assert bool(found.claim.counts["records_in_place"]) is (went == "quarantined 1" or lane == "erase")


def test_the_command_tells_every_promise(scenario: Scenario) -> None:
    scenario.answer("land a=1 b=1 a=2")
    assert "no snapshot is the result of a plan" in scenario.answer("firn verify {table}")[0]
    landed = scenario.loaded().metadata.current_snapshot_id
    scenario.answer("full!")
    told = [one.strip() for one in scenario.answer("firn verify {table}")]
    assert "kept  expect_newest_record_kept (C1, C2, C3): broken by 0 of 2 keys." in told
    for snapshot, reason in ((landed, "is not the result of a plan"), (7, "is gone, or is not")):
        assert [reason in one for one in scenario.answer(f"firn verify {{table}} --snapshot {snapshot}")] == [True]


def test_c8_horizons_are_held_to_the_retention_of_their_commit(topic: Topic) -> None:
    topic.create(delete_retention_ms="1000").land(updates("a=1", "b=", "c=1"))
    topic.clean("full", force=True)
    written = on_disk(topic.lake.table(topic.table).metadata_location)
    topic.lake.set_properties(topic.table, {"firn.delete.retention.ms": "5000"})
    for stamp, note in ((NOW + 1000, False), (None, True)):
        (found,) = judge(Committed.find(topic.lake, topic.table, None), LocalEngine())
        assert (found.passed, found.claim.stamp_ms) == (True, stamp)
        assert any("not judged: the metadata file" in row.observed for row in found.expectations) is note
        written.unlink(missing_ok=True)


Kept = Callable[[list[Row]], list[Row]]


def cleaned(topic: Topic, lane: str) -> Snapshot:
    topic.clean(lane, force=True)
    return next(ancestors(topic.lake.table(topic.table)))


@pytest.fixture(scope="module")
def erased(lake: Lake, engine: Engine) -> tuple[Topic, Snapshot]:
    """A right erasure, whose place forged ones take."""
    topic = Topic(lake, engine, "db.forged").land(updates("a=1", "b=1", "a=2", "c=1"))
    request(topic, b"a")
    topic.land(updates("a=3", "d=1", "e=1", start=4))
    return topic, cleaned(topic, "erase")


def forged(topic: Topic, right: Snapshot, kept: Kept, **claimed: int) -> set[str]:
    """The promises that a commit breaks that keeps ``kept`` of each segment. It says of itself what the right one says,
    but for what is ``claimed``."""
    table = topic.lake.table(topic.table)
    table.manage_snapshots().rollback_to_snapshot(right.parent_snapshot_id or 0).commit()
    said = {name: value for name, value in firn_properties(right).items() if name.startswith("firn.")}
    gone, added = list[str](), list[DataFile]()
    for file in (task.file for task in table.scan(snapshot_id=right.parent_snapshot_id).plan_files()):
        rows = pq.read_table(on_disk(file.file_path), partitioning=None).to_pylist()
        if (remaining := kept(rows)) != rows:
            values = [file.partition[place] for place in range(len(file.partition))]
            gone.append(file.file_path)
            added.append(data_file(table, remaining, file.spec_id, values))
    change = BranchChange(gone, added, {**said, **{f"firn.{name}": str(number) for name, number in claimed.items()}})
    commit(topic.lake, Commit(topic.lake.table(topic.table), [(MAIN_BRANCH, change)]), topic.table)
    verified = judge(Committed.find(topic.lake, topic.table, None), LocalEngine())
    return {found.name for one in verified for found in one.failures}


def without(*offsets: int, **changed: Any) -> Kept:
    """Without the records at ``offsets``, and with the ``changed`` values of the record at offset 1."""
    return lambda rows: [
        {**one, **(changed if one["offset"] == 1 else {})} for one in rows if one["offset"] not in offsets
    ]


@pytest.mark.parametrize(
    ("kept", "claimed", "promise"),
    [
        (without(0, 1, 2), 3, "expect_other_records_unchanged"),
        (without(0, 2, 4), 3, "expect_other_records_unchanged"),
        (without(0, 2, value=b"other"), 2, "expect_other_records_unchanged"),
        (without(0), 1, "expect_requested_records_gone"),
        (without(4), 1, "expect_requested_records_gone"),
        (without(0, 2, 6), 3, "expect_log_end_kept"),
        (without(0, 2), 1, "expect_record_counts_to_add_up"),
    ],
    ids=[
        "another key",
        "a newer record",
        "a value",
        "not all",
        "none of a segment",
        "the log end",
        "more than it says",
    ],
)
def test_c30_forged_commits(erased: tuple[Topic, Snapshot], kept: Kept, claimed: int, promise: str) -> None:
    assert promise in forged(*erased, kept, erased=claimed)


def test_c3_a_forged_cleaning(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1", "a=2"))
    broken = forged(topic, cleaned(topic, "full"), without(0, 1))
    assert {"expect_newest_record_kept", "expect_record_counts_to_add_up"} <= broken


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (slice(3), "expect_only_expired_segments_dropped: 2 segments not past retention"),
        (slice(4), "expect_log_end_kept: 1 segment dropped that may hold the log end"),
        (slice(1, 2), "expect_oldest_segments_dropped: 1 segment not dropped, with records perhaps older"),
    ],
)
def test_c4_c19_what_retention_decides_wrong_is_noticed(
    scenario: Scenario, monkeypatch: Any, chosen: slice, said: str
) -> None:
    """Planning decides to drop other segments, and nothing that it checks later keeps them."""
    scenario.answer("create cleanup.policy=delete retention.ms=172800000")
    scenario.answer("land k=1,3d | k=2 | k=3 | k=4,0s")
    traits = Lane.RETAIN.traits

    def wrong(state: State, force: bool) -> Work | Waits:
        found = traits.look(state, force)
        return replace(found, inputs=state.segments[chosen]) if isinstance(found, Work) else found

    with monkeypatch.context() as patch:
        patch.setattr(Lane.RETAIN, "traits", replace(traits, look=wrong))
        patch.setattr(publish, "_kept", lambda *_: None)
        assert said in scenario.answer("retain")[0]
        assert scenario.answer("retain") == ["nothing due"], "the plan waits until its segments change"
    assert scenario.answer("retain") == ["1 to 0 segments, 1 to 0 records; expired 1"]
    scenario.answer("firn report")
    stored = [one.read_text() for one in scenario.opened.lake.reports_folder.glob("verdicts/*.json")]
    assert any('"0 of 1 segment."' in one and '"0 of 3 segments."' in one for one in stored)


def staged(topic: Topic, partitions: int = 1) -> Stage:
    """A stage of as many plans."""
    for partition in range(partitions):
        topic.land(updates("a=1", "b=1", "a=2", partition=partition))
    (identifier,) = {done.stage for done in topic.compacted(*topic.plans("full", force=True))}
    return Stage.load(topic.lake, identifier)


@pytest.mark.parametrize("values", ["fingerprint", "full"])
def test_c1_a_value_that_was_changed_on_the_way_is_found_in_its_plan(topic: Topic, values: str) -> None:
    """Values of both sides are read only where the table says so, or where the fingerprint differs."""
    stage = staged(topic.create(validate=values), 3)
    path = on_disk(next(iter(stage.changes.values())).written[0].file_path)
    held, other = pq.read_table(path, partitioning=None), pa.array([b"x", b"2"])
    at = held.schema.get_field_index("value")
    pq.write_table(held.set_column(at, held.schema.field(at), other.cast(held.schema.field(at).type)), path)
    judged = [one.verdict for one in validate(topic.lake, [stage.identifier], LocalEngine())]
    found = {one.claim.plan_id: (one.reason, one.closely) for one in judged if one}
    wrong, *others = (found[plan_id] for plan_id in stage.changes)
    assert wrong == ("expect_records_unchanged: 1 record unlike what was read at the same offset.", True)
    assert others == [("", values == "full")] * 2


def test_c17_plans_that_do_not_fit_the_memory_are_judged_by_the_engine(scenario: Scenario, monkeypatch: Any) -> None:
    monkeypatch.setattr(judging, "TASK_BYTES", 100)
    scenario.answer("land a=1 a=2 1/a=1 1/a=2 1/a=3")
    said = scenario.answer("full!")
    assert {one.partition("; ")[2] for one in said} == {"superseded 1", "superseded 2"}


def test_c20_a_file_that_is_gone_is_an_error_that_names_plan_and_file_and_no_verdict(topic: Topic) -> None:
    stage = staged(topic)
    ((plan_id, change),) = stage.changes.items()
    lost = on_disk(change.written[0].file_path)
    kept = shutil.move(lost, lost.with_suffix(".kept"))
    (judged,) = validate(topic.lake, [stage.identifier], LocalEngine())
    assert judged.verdict is None
    assert plan_id in str(judged.error)
    assert lost.name in str(judged.error)
    shutil.move(kept, lost)
    assert not validate(topic.lake, [stage.identifier], LocalEngine())[0].error, "asked again it is judged"
