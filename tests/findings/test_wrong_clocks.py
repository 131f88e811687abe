"""R18, A3, A5: a clock in the table's history that nobody's clock has shown yet, forged or honest; a wrong machine."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField

from firnlake import clock
from firnlake.compact.compact import compact
from firnlake.engine.engine import Engine
from firnlake.errors import FirnError
from firnlake.iceberg.authorship import properties_of
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Choice, adopt
from firnlake.inspect.status.gather import status_of
from firnlake.maintain.maintain import MaintenancePart, maintain_table
from firnlake.publish.publish_jobs import retain_plans
from firnlake.table.published_plans import NOW_MS
from firnlake.validate.validate import validate, verify
from tests.support.clocks import machine_at
from tests.support.in_process import Firn, command_on, refused
from tests.support.topics import DAY, Record, Topic, foreign_rows, updates

NOW = clock.now_ms()
HOUR = DAY // 24
CENTURY = 36_525 * DAY


def deleted(topic: Topic) -> Topic:
    records = [Record(0, b"a", b"1"), Record(1, b"a", None), Record(2, b"b", b"1")]
    return topic.land([record._replace(timestamp_ms=NOW - 2 * DAY) for record in records])


def claim(topic: Topic, properties: Mapping[str, str], record: Record | None = None) -> None:
    """Append as any writer can, and claim what only Firn's commits have."""
    rows = foreign_rows(topic.arrow([record or Record(3, b"c", b"1", timestamp_ms=NOW - DAY)]))
    topic.lake.table(topic.table).append(rows, snapshot_properties=dict(properties))


def forge(topic: Topic, clock_ms: str) -> None:
    claim(topic, {NOW_MS: clock_ms})


def newest(topic: Topic) -> Mapping[str, str]:
    """The summary of main's newest snapshot."""
    snapshot = topic.lake.table(topic.table).current_snapshot()
    assert snapshot is not None
    return properties_of(snapshot)


def test_r18_an_appender_does_not_set_the_clock(topic: Topic) -> None:
    forge(deleted(topic), str(NOW + CENTURY))
    topic.clean("full", NOW, force=True)
    assert topic.horizons() == {1: NOW + DAY}


def test_r18_nor_does_it_end_every_run(topic: Topic) -> None:
    forge(deleted(topic), "9" * 18)
    topic.clean("full", NOW, force=True)
    assert topic.offsets() == [1, 2, 3]


def test_r18_one_run_by_a_wrong_clock_does_not_last(topic: Topic) -> None:
    with suppress(FirnError):
        deleted(topic).clean("full", NOW + CENTURY, force=True)
    for days in (0, 2, 4):
        topic.clean("full", NOW + days * DAY, force=True)
    assert topic.offsets() == [2]


def test_a3_a_copied_summary_is_nobodys_commit(topic: Topic) -> None:
    """As a job does that hands on the properties of the snapshot that it read."""
    deleted(topic).clean("full", NOW, force=True)
    firns = topic.lake.table(topic.table).current_snapshot()
    assert firns is not None
    copied = {name: value for name, value in newest(topic).items() if name.startswith("firn.")}
    claim(topic, copied)
    assert newest(topic).items() >= copied.items()
    (judged,) = verify(topic.lake, topic.table, None, topic.engine)
    assert judged.snapshot_id == firns.snapshot_id
    (part,) = status_of(topic.lake, topic.table, NOW).partitions
    assert part.dirty_ratio > 0, "nobody cleaned what landed"
    assert len(status_of(topic.lake, topic.table, NOW).details().publications) == 1


def test_a3_an_appender_does_not_void_removed_tombstones(topic: Topic) -> None:
    """A record older than the tombstone stays deleted (C9)."""
    topic.land(updates("z=1"), updates("a=1", "a=", "b=1", start=5))
    for days in (0, 2):
        topic.clean("full", NOW + days * DAY, force=True)
    assert [row["offset"] for row in topic.removed_tombstones()] == [6]
    claim(topic, {"firn.memory": "{}"}, Record(2, b"a", b"0"))
    topic.clean("full", NOW + 2 * DAY, force=True)
    assert b"a" not in {record.key for record in topic.seen() if record.value is not None}


@pytest.mark.parametrize("progress", ["9" * 5000, "9" * 30])
def test_a3_absurd_progress_ends_no_maintenance_and_is_not_kept_for_ever(topic: Topic, progress: str) -> None:
    """What a sink said a month ago goes with its snapshot, whatever it claims."""
    topic.land(updates("a=1"))
    claim(topic, {"kafka.connect.offsets": "{}", "firn.progress-ms": progress})
    topic.append(updates("c=1", start=4))
    later = clock.now_ms() + 40 * DAY
    maintain_table(topic.lake, topic.table, later, remove=True, parts={MaintenancePart.SNAPSHOTS})
    assert "kafka.connect.offsets" not in newest(topic)


@pytest.mark.parametrize("claimed", [{"redpanda.x": "[" * 200_000}, {"source-snapshot-id": "9" * 5000}])
def test_a3_a_summary_that_nobody_can_read_ends_no_run(topic: Topic, firn: Firn, claimed: dict[str, str]) -> None:
    claim(deleted(topic), claimed)
    topic.clean("full", NOW, force=True)
    assert firn("status", topic.table, "--now", NOW).code == 0


def test_a3_a_clock_that_is_no_number_is_none_even_in_a_forged_summary(topic: Topic, firn: Firn) -> None:
    table = deleted(topic).lake.table(topic.table)
    with table.transaction() as transaction:
        append = transaction.update_snapshot(snapshot_properties={"firn.now-ms": "9" * 30}).fast_append()
        append.snapshot_properties["firn.snapshot-id"] = str(append.snapshot_id)
        append.commit()
    topic.clean("full", NOW, force=True)
    assert firn("status", topic.table, "--now", NOW).code == 0


@pytest.fixture
def firn(topic: Topic, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Firn:
    """Run ``firn`` in this process, on the topic's lake."""
    return command_on(topic.lake, monkeypatch, capsys)


def nobody_waits(topic: Topic) -> None:
    status = status_of(topic.lake, topic.table, NOW)
    assert (status.held(), [part.blockers for part in status.partitions]) == ({}, [()])


@pytest.mark.parametrize("ahead", [HOUR + 60_000, 182 * DAY, CENTURY])
def test_a5_a_run_by_a_clock_ahead_is_refused_at_once(topic: Topic, firn: Firn, ahead: int) -> None:
    """In one line with units that people read; nothing waits for a person."""
    deleted(topic)
    with machine_at(NOW):
        before = topic.lake.table(topic.table).metadata_location
        ran = firn("run", topic.table, "--now", NOW + ahead, "--force", "--engine", "local")
        refused(ran, f"table {topic.table}: ")
        assert f" is {clock.show_seconds(ahead)} ahead of this machine's clock" in ran.err
        assert "allowed: at most 1 h" in ran.err
        assert topic.lake.table(topic.table).metadata_location == before
        nobody_waits(topic)
        assert firn("run", topic.table, "--force", "--engine", "local").code == 0
    assert topic.offsets() == [1, 2]


@pytest.mark.parametrize(
    "looking", [("plan",), ("run", "--dry-run"), ("status",), ("explain", "orders-0")], ids=" ".join
)
def test_a5_a_look_ahead_is_allowed(topic: Topic, firn: Firn, looking: tuple[str, ...]) -> None:
    deleted(topic)
    with machine_at(NOW):
        name, *others = looking
        ran = firn(name, topic.table, *others, "--now", NOW + 182 * DAY)
    assert (ran.code, ran.err) == (0, "")


def test_a5_an_hour_ahead_is_no_wrong_clock(topic: Topic, firn: Firn) -> None:
    deleted(topic)
    with machine_at(NOW):
        assert firn("run", topic.table, "--now", NOW + HOUR, "--force", "--engine", "local").code == 0
    assert topic.offsets() == [1, 2]


def test_a5_plans_to_be_carried_out_are_not_written_by_a_clock_ahead(topic: Topic, firn: Firn, tmp_path: Path) -> None:
    deleted(topic)
    with machine_at(NOW):
        ran = firn("plan", topic.table, "--now", NOW + DAY, "--force", "--write", tmp_path / "plans")
    refused(ran, "is 1 d ahead of this machine's clock")


def test_a5_another_machines_clock_ahead_marks_nothing(topic: Topic) -> None:
    """A worker two hours ahead has planned: the next ones refuse, and what a right clock plans is published."""
    with machine_at(NOW + 2 * HOUR):
        (plan,) = deleted(topic).plans("full", NOW + 2 * HOUR, force=True)
        stages = [done.stage for done in topic.compacted(plan)]
    with machine_at(NOW):
        (judged,) = validate(topic.lake, stages, topic.engine)
        assert "its clock " in str(judged.error)
        assert " is 2 h ahead of this machine's clock" in str(judged.error)
        (done,) = compact(topic.lake, [plan], topic.engine)
        assert " is 2 h ahead of this machine's clock" in str(done.error)
        nobody_waits(topic)
        assert len(topic.plans("full", NOW)) == 1, "without --force"
        topic.clean("full", NOW)
    assert topic.offsets() == [1, 2]


def test_a5_nor_in_lane_retain(topic: Topic) -> None:
    topic.create(cleanup_policy="delete", retention_ms=str(DAY))
    topic.land(*([Record(offset, b"k", b"v", 0, NOW - age * HOUR)] for offset, age in enumerate((25, 23, 0))))
    with machine_at(NOW + 2 * HOUR):
        (plan,) = topic.plans("retain", NOW + 2 * HOUR)
    with machine_at(NOW):
        assert len(plan.inputs) == 2
        assert " is 2 h ahead of this machine's clock" in str(retain_plans(topic.lake, [plan]).failures[plan.id])
        nobody_waits(topic)
        assert retain_plans(topic.lake, topic.plans("retain", NOW)).failures == {}
    assert topic.offsets() == [1, 2]


def test_a5_a_clock_behind_is_told_once(topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
    deleted(topic).clean("full", NOW, force=True)
    topic.land(updates("d=1", "d=2", start=10), updates("e=1", start=20))
    with caplog.at_level("WARNING"):
        topic.run(NOW - 4 * DAY - HOUR, force=True)
    (told,) = [record.message for record in caplog.records if "behind" in record.message]
    assert told.startswith(f"{topic.table}: ")
    assert " is 4 d 1 h behind " in told


BEYOND = {
    "microseconds taken for milliseconds: the year 55,840": 1_700_000_000_000_000,
    "the last that fits": 2**63 - 1,
    "BC": -65_000_000_000_000,
}


@pytest.mark.parametrize("at_ms", BEYOND.values(), ids=BEYOND)
def test_r18_an_absurd_time_of_a_record_holds_back_its_topic_partition(
    lake: Lake, engine: Engine, firn: Firn, at_ms: int
) -> None:
    lake.create_namespace("absurd")
    name = f"absurd.{(topic := f't{at_ms % 97}')}"
    fields = (("shard", IntegerType()), ("id", LongType()), ("at", LongType()), ("seq", LongType()))
    schema = Schema(*(NestedField(number, *field) for number, field in enumerate(fields, 1)))
    lake.catalog.create_table(name, schema, properties={"format-version": "2"})
    adopt(lake, name, Choice(("id",), "seq", timestamp="at", partition="shard"), {})
    times = {(0, 1): NOW, (0, 2): at_ms, (1, 1): NOW, (1, 2): NOW}
    rows = [{"shard": shard, "id": 7, "at": at, "seq": seq} for (shard, seq), at in times.items()]
    lake.table(name).append(pa.Table.from_pylist(rows, schema=lake.table(name).schema().as_arrow()))
    ran = firn("run", name, "--force", "--engine", "local")
    assert ran.code == 6, ran
    left = lake.table(name).scan().to_arrow().to_pylist()
    assert sorted((row["shard"], row["seq"]) for row in left) == [(0, 1), (0, 2), (1, 2)]
    told = firn("status", name, "--check")
    assert told.code == 6
    for said in (f"{topic}-0", "has times in column at that", "allowed: times of the years 1 to 9999"):
        assert said in told.err
    for command in (("explain", name, f"{topic}-0"), ("status", name), ("status", name, "--json")):
        assert firn(*command).code == 0
