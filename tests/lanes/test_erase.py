"""C30: lane `erase` takes the records of requested keys out of every segment, and changes nothing else."""

from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, DecimalType, IntegerType, LongType, NestedField, StringType

from firnlake.engine.engine import Engine
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Choice, adopt
from firnlake.inspect.erasures import status
from firnlake.inspect.explain.key import explain_key
from firnlake.job.failures import failed_plans
from firnlake.job.lane import Lane
from firnlake.lanes.erasure.ask import ask
from firnlake.publish.publish_jobs import publish_stages
from firnlake.run import run
from firnlake.table.segment import TAIL
from infra.foreign.files import on_disk
from tests.support.erasing import HOUR, erasures, request
from tests.support.log_topics import Log
from tests.support.row_deletes import delete, deletes
from tests.support.topics import NOW, Record, Topic, updates


def test_c30_a_key_goes_from_every_level_and_everything_else_stays(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1", "c=1")).clean("full")
    topic.land(
        updates("a=2", "d=1", start=3), updates("b=2", start=5), updates("a=3", start=6), updates("e=1", start=7)
    )
    topic.clean("merge")
    topic.land(updates("a=4", "f=1", start=8))
    before, levels = topic.seen(), topic.levels()
    request(topic, b"a")
    (counts,) = topic.clean("erase", force=True)
    assert topic.seen() == [record for record in before if record.key != b"a"]
    assert topic.levels() == levels
    assert (counts.erased, counts.records_in, counts.records_out) == (4, len(before), len(before) - 4)


def test_c30_only_segments_with_the_key_are_written_anew(topic: Topic) -> None:
    topic.land(updates("a=1"), updates("b=1", start=1), updates("c=1", start=2))
    before = {segment.path for segment in topic.segments()}
    request(topic, b"b")
    (counts,) = topic.clean("erase", force=True)
    after = {segment.path for segment in topic.segments()}
    assert (len(before - after), len(after - before)) == (1, 0)
    assert (counts.segments_in, counts.segments_out, counts.segments_in_place) == (1, 0, 2)


def test_c30_requests_are_served_together_after_a_while(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1", "c=1"))
    request(topic, b"a")
    request(topic, b"b", now=NOW + HOUR // 2)
    assert topic.plans("erase", NOW + HOUR - 1) == []
    topic.clean("erase", NOW + HOUR)
    assert [record.key for record in topic.seen()] == [b"c"]
    assert topic.plans("erase", NOW + 9 * HOUR) == []


def test_c30_a_request_with_little_time_waits_a_quarter_of_it(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"))
    topic.lake.set_properties(topic.table, {"firn.erase.history": "expire"})
    request(topic, b"a", within_ms=4_000)
    assert topic.plans("erase", NOW + 999) == []
    assert topic.plans("erase", NOW + 1_000) != []


def test_c30_a_key_that_nobody_knows_is_read_for_once_in_every_partition(topic: Topic) -> None:
    topic.land([Record(0, b"a", b"1", part) for part in (0, 1)], [Record(1, b"b", b"1", part) for part in (0, 1)])
    before = topic.rows()
    request(topic, b"never seen")
    assert [counts.erased for counts in topic.clean("erase", force=True)] == [0, 0]
    assert topic.rows() == before
    assert topic.plans("erase", NOW + HOUR, force=True) == []


def test_c4_the_log_end_stays_until_a_newer_record_has_landed(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1", "a=2"))
    request(topic, b"a")
    topic.clean("erase", force=True)
    assert topic.offsets() == [1, 2]
    topic.clean("erase", NOW + HOUR, force=True)
    assert topic.plans("erase", NOW + HOUR, force=True) == []
    topic.land(updates("c=1", start=3))
    topic.clean("erase", NOW + HOUR)
    assert topic.offsets() == [1, 3]


class TestLateArrivals:
    """C30: a record that lands later with a lower offset goes as well, for ever; what lands past the log end stays."""

    def test_c30_it_goes_at_once(self, topic: Topic) -> None:
        topic.land(updates("b=1", "c=1", start=5))
        request(topic, b"a", b"b")
        topic.clean("erase", force=True)
        topic.append(updates("a=1", "d=1", start=1))
        topic.append(updates("a=2", "b=2", start=7))
        assert [plan.lane for plan in topic.plans("erase")] == [Lane.ERASE]
        topic.clean("erase")
        assert topic.offsets() == [2, 6, 7, 8]
        assert topic.plans("erase", NOW + HOUR, force=True) == []

    @pytest.mark.parametrize("lane", ["merge", "full"])
    def test_c30_what_another_lane_writes_of_it_is_read_as_well(self, topic: Topic, lane: str) -> None:
        topic.land(updates("b=1", "c=1", start=5))
        request(topic, b"a")
        (search,) = topic.plans("erase", force=True)
        topic.append(updates("a=1", "d=1", start=1))
        topic.append(updates("e=1", start=3))
        stages = topic.validated([search])
        assert publish_stages(topic.lake, {stage: [] for stage in stages}).failures == {}
        topic.clean(lane, force=True)
        assert topic.offsets() == [1, 2, 3, 5, 6]
        topic.clean("erase", force=True)
        assert topic.offsets() == [2, 3, 5, 6]
        assert topic.plans("erase", NOW + HOUR, force=True) == []

    def test_c30_what_was_planned_before_the_request_is_read_as_well(self, topic: Topic) -> None:
        topic.land(updates("a=1"), updates("c=1", start=1), updates("d=1", start=2))
        (merge,) = topic.plans("merge", force=True)
        request(topic, b"a")
        (search,) = topic.plans("erase", force=True)
        merged, searched = topic.validated([merge]), topic.validated([search])
        assert publish_stages(topic.lake, {stage: [] for stage in merged}).failures == {}
        assert "plan again" in str(publish_stages(topic.lake, {stage: [] for stage in searched}).failures)
        topic.run(force=True, until_idle=True)
        assert topic.offsets() == [1, 2]

    def test_c30_what_a_merge_wrote_once_all_was_read_is_not_read_again(self, topic: Topic) -> None:
        topic.land(updates("b=1"), updates("c=1", start=1), updates("d=1", start=2))
        request(topic, b"a")
        topic.clean("erase", force=True)
        topic.clean("merge", force=True)
        topic.clean("full", force=True)
        assert topic.plans("erase", NOW + HOUR, force=True) == []


class TestObstacles:
    """C30: what is in the way of one record is in the way of all, so that no older value shows up."""

    def test_c11_what_is_too_young_waits(self, topic: Topic) -> None:
        topic.create(min_compaction_lag_ms="60000")
        topic.append([Record(0, b"a", b"0"), Record(5, b"a", None)])
        topic.append([Record(3, b"a", b"1", timestamp_ms=NOW), Record(9, b"c", b"1", timestamp_ms=NOW)])
        request(topic, b"a")
        assert topic.plans("erase", NOW + 59_999, force=True) == []
        topic.clean("erase", NOW + 60_000, force=True)
        assert topic.offsets() == [9]

    def test_c10_what_is_undecided_waits(self, topic: Topic, tmp_path: Path) -> None:
        log = Log(topic, tmp_path).land("a=1", "b=1").land("1 a=2", "a=3", "c=1")
        request(topic, b"a")
        assert topic.plans("erase", force=True) == []
        log.land("1 abort", "d=1")
        topic.clean("erase", force=True)
        assert log.offsets() == [1, 4, 5, 6]

    def test_c4_a_log_end_that_deletes_may_hide_waits(self, topic: Topic) -> None:
        topic.land(updates("a=1"), updates("a=2", "b=1", start=1))
        delete(topic, 2)
        request(topic, b"a")
        assert topic.plans("erase", force=True) == []
        topic.land(updates("c=1", start=3))
        topic.clean("erase", force=True)
        assert topic.offsets() == [3]

    def test_c30_a_segment_from_past_the_log_end_waits_for_a_new_request(self, topic: Topic) -> None:
        topic.land(updates("a=1", "b=1"))
        back = topic.lake.table(topic.table).current_snapshot()
        assert back is not None
        topic.land(updates("a=2", "c=1", start=2))
        forward = topic.lake.table(topic.table).current_snapshot()
        assert forward is not None
        topic.lake.table(topic.table).manage_snapshots().set_current_snapshot(back.snapshot_id).commit()
        request(topic, b"a")
        topic.lake.table(topic.table).manage_snapshots().set_current_snapshot(forward.snapshot_id).commit()
        topic.append(updates("d=1", start=4))
        assert topic.plans("erase", force=True) == []
        assert "a new request for the same keys" in reasons(topic)
        request(topic, b"a")
        topic.clean("erase", force=True)
        assert topic.offsets() == [1, 3, 4]

    def test_c20_a_file_that_cannot_be_read_waits_for_a_change_of_what_is_read_or_requested(self, topic: Topic) -> None:
        topic.land(updates("a=1", "b=1", "c=1"))
        path = on_disk(topic.segments()[0].path)
        path.write_bytes(path.read_bytes()[:-200])
        request(topic, b"a")
        later = NOW + 2 * HOUR
        list(run(topic.lake, topic.table, later, topic.engines, (Lane.ERASE,)))
        assert topic.plans("erase", later + 1) == []
        (failed,) = failed_plans(topic.lake, topic.table)
        assert "Firn retries it when its segments or requests change" in str(failed)
        assert "firn retry" in reasons(topic, later)
        request(topic, b"b", now=later - HOUR)
        (plan,) = topic.plans("erase", later)
        assert len(plan.requests) == 2


def reasons(topic: Topic, now: int = NOW) -> str:
    """What the requests wait for."""
    return "; ".join(reason for one in status(topic.lake, topic.table, now) for reason in one.reasons)


class TestOtherRecords:
    """Tombstones, hidden records, control records, files that are listed twice, files of other writers."""

    def test_c30_removed_tombstones_of_the_key_go_and_older_values_stay_away(self, topic: Topic) -> None:
        topic.create(delete_retention_ms="0")
        topic.land([*updates("a=1"), Record(1, b"a", None), Record(2, b"b", None), *updates("c=1", start=3)])
        topic.clean("full")
        topic.clean("full", NOW + 1, force=True)
        assert [row["offset"] for row in topic.removed_tombstones()] == [1, 2]
        request(topic, b"a")
        (counts,) = topic.clean("erase", force=True)
        assert [row["offset"] for row in topic.removed_tombstones()] == [2]
        assert (counts.erased, counts.records_in) == (0, 0)
        topic.append(updates("a=1"))
        topic.run(NOW + 2, until_idle=True)
        assert topic.offsets() == [3]

    def test_c8_a_kept_tombstone_keeps_its_horizon(self, topic: Topic) -> None:
        topic.land([*updates("a=1", "b=1"), Record(2, b"b", None), *updates("c=1", start=3)])
        topic.clean("full")
        before = topic.horizons()
        request(topic, b"a")
        topic.clean("erase", NOW + 1, force=True)
        assert topic.horizons() == before != {}
        assert topic.levels() == [TAIL]

    def test_c27_hidden_records_go_and_files_without_the_key_keep_their_deletes(self, topic: Topic) -> None:
        topic.land(updates("a=1", "b=1"), updates("b=2", "c=1", start=2), updates("d=1", start=4))
        delete(topic, 0)
        delete(topic, 2)
        request(topic, b"a")
        (counts,) = topic.clean("erase", force=True)
        assert topic.offsets() == [1, 3, 4]
        assert (counts.records_in, counts.records_out, counts.erased, counts.deleted) == (1, 1, 0, 1)
        assert len(deletes(topic)) == 1

    def test_c10_a_control_record_has_no_user_key(self, topic: Topic, tmp_path: Path) -> None:
        log = Log(topic, tmp_path).land("1 a=1", "1 commit", "b=1")
        request(topic, b"\0\0\0\1", b"a")
        topic.clean("erase", force=True)
        assert log.offsets() == [1, 2]

    def test_c19_a_topic_that_is_not_compacted_is_read_too(self, topic: Topic) -> None:
        topic.create(cleanup_policy="delete")
        topic.land(updates("a=1", "a=2", "b=1"))
        request(topic, b"a")
        topic.clean("erase", force=True)
        assert topic.offsets() == [2]

    def test_c1_a_segment_that_is_listed_twice_loses_both_copies(self, topic: Topic) -> None:
        topic.land(updates("a=1", "b=1", "c=1"))
        (segment,) = topic.segments()
        topic.lake.table(topic.table).add_files([segment.path], check_duplicate_files=False)
        request(topic, b"a")
        (counts,) = topic.clean("erase", force=True)
        assert topic.offsets() == [1, 1, 2, 2]
        assert (counts.erased, counts.records_in) == (2, 6)

    def test_c12_an_erasure_is_no_full_clean(self, topic: Topic) -> None:
        topic.create(delete_retention_ms="1000", tombstone_fraction="0")
        topic.land([*updates("a=1", "b=1"), Record(2, b"b", None), *updates("c=1", start=3)])
        topic.clean("full")
        request(topic, b"a")
        topic.clean("erase", NOW + 5_000, force=True)
        topic.clean("full", NOW + 6_000)
        assert topic.offsets() == [3]

    @pytest.mark.parametrize("level", [2, 3])
    def test_c16_a_strangers_tail_is_not_trusted_because_it_was_read(self, topic: Topic, level: int) -> None:
        topic.create().append([*updates("a=1", "b=1", "b=2", "c=1")], level=level)
        request(topic, b"a")
        topic.clean("erase", force=True)
        assert topic.levels() == [2]
        topic.land(updates("d=1", start=4))
        topic.clean("full", force=True)
        assert topic.offsets() == [2, 3, 4]


def test_c30_explain_says_what_becomes_of_a_record(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"))

    def said(now: int = NOW) -> list[tuple[int, str, str]]:
        found = explain_key(topic.lake, topic.table, (b"a",), now)
        every = [(one.record, one.reason) for one in found.kept] + [(one.record, one.reason) for one in found.removed]
        return [(record.offset, reason.rule, reason.text) for record, reason in every]

    request(topic, b"a")
    assert said() == [(0, "C30", "its key is to be erased; requests to erase keys wait for more requests")]
    assert said(NOW + HOUR) == [(0, "C30", "its key is to be erased; lane erase removes it, and is due")]
    topic.clean("erase", force=True)
    assert said() == [(0, "C30", "erased on request")]


def test_c30_a_lost_or_damaged_request_stops_the_table_and_is_named(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"))
    asked = request(topic, b"a")
    topic.clean("erase", force=True)
    (document,) = on_disk(topic.lake.table(topic.table).location()).rglob(f"{asked.id}.json")
    content = document.read_bytes()
    document.unlink()
    with pytest.raises(RefusedError, match=f"request {asked.id} to erase keys is lost; allowed: its document"):
        list(run(topic.lake, topic.table, NOW, topic.engines, force=True))
    document.write_bytes(content)
    other = document.with_name(f"{'0' * 32}.json")
    other.write_bytes(content[:-9])
    with pytest.raises(RefusedError, match=f"{other.name} is not readable: .*; allowed: the document as Firn wrote it"):
        list(run(topic.lake, topic.table, NOW, topic.engines, force=True))
    other.unlink()
    assert [erasure.request.id for erasure in erasures(topic)] == [asked.id]


COLUMNS = {
    "id": (IntegerType(), -1, 7),
    "amount": (DecimalType(9, 2), Decimal("-0.05"), Decimal("7.00")),
    "day": (DateType(), date(1969, 12, 30), date(2026, 1, 1)),
    "name": (StringType(), "ä", "b"),
}


@pytest.mark.parametrize("names", [*((name,) for name in COLUMNS), tuple(COLUMNS)], ids=lambda names: "-".join(names))
def test_c30_keys_of_any_type(lake: Lake, engine: Engine, names: tuple[str, ...]) -> None:
    """In tables that Firn did not make."""
    identifier = f"adopted.{'_'.join(names)}"
    lake.catalog.create_namespace_if_not_exists("adopted")
    fields = [NestedField(index, name, COLUMNS[name][0]) for index, name in enumerate(COLUMNS, start=1)]
    table = lake.catalog.create_table(identifier, Schema(*fields, NestedField(9, "seq", LongType())))
    rows = [{name: COLUMNS[name][1 + number % 2] for name in COLUMNS} | {"seq": number} for number in range(4)]
    table.append(pa.Table.from_pylist(rows, schema=schema_to_pyarrow(table.schema())))
    adopt(lake, identifier, Choice(names, "seq"))
    ask(lake, identifier, [tuple(str(rows[0][name]).encode() for name in names)], NOW)
    done = list(run(lake, identifier, NOW, lambda _: engine, (Lane.ERASE,), force=True))
    assert [one.failures for one in done if one.failures] == []
    assert sorted(row["seq"] for row in lake.table(identifier).scan().to_arrow().to_pylist()) == [1, 3]
