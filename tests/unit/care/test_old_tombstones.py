"""C30: with `firn.erase.max.ms` every tombstone becomes a request, once, by its own deadline."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, TimestampType

from pipeline import clock
from pipeline.adopt import Choice, adopt
from pipeline.care import HOURLY, Kind, Part, care_table
from pipeline.erase.ask import ask
from pipeline.erase.digests import digests_of, key_bytes
from pipeline.erase.requests import Request
from pipeline.erase.stored import read_erasures
from pipeline.errors import RefusedError
from pipeline.lake import Lake
from pipeline.lake.branches import ERASURES, HAS_SIDE_BRANCHES
from pipeline.prove.status import status
from tests.lanes.test_transactions import Log
from tests.support.erasing import erasures
from tests.support.old_tombstones import MAX, OLD, PARTS, YOUNG, asked, care, digest, record
from tests.support.row_deletes import delete_at, places
from tests.support.topics import DAY, NOW, Record, Topic, kafka_rows


class TestRequests:
    def test_c30_a_tombstone_is_a_request_with_its_own_deadline(self, limited: Topic) -> None:
        limited.land([record(0, b"a", b"1"), record(1, b"a"), record(2, b"b", at=OLD - 5), record(3, b"c", b"1")])
        (told,) = care(limited)
        assert (told.kind, told.name, told.goes, told.exit_code) == (Kind.REQUEST, "request 1", False, 0)
        known = erasures(limited)
        expected = {
            Request(1, "orders", 0, 2, digest(known, b"a"), NOW, OLD + MAX, expire_history=False),
            Request(1, "orders", 0, 3, digest(known, b"b"), NOW, OLD - 5 + MAX, expire_history=False),
        }
        assert set(known.requests) == expected
        assert len(known.requests) == 2

    def test_c30_a_young_one_waits_and_is_requested_later(self, limited: Topic) -> None:
        limited.land([record(0, b"a", at=YOUNG), record(1, b"b"), record(2, b"c", b"1")])
        care(limited)
        assert asked(limited) == [(1, 0, 2, OLD + MAX)]
        care(limited, NOW + 4 * DAY)
        assert asked(limited) == [(1, 0, 2, OLD + MAX), (2, 0, 1, YOUNG + MAX)]

    def test_c30_no_request_before_a_quarter_of_the_time_has_passed(self, limited: Topic) -> None:
        limited.land([record(0, b"a", at=NOW - MAX // 4 + 1), record(1, b"c", b"1", at=NOW)])
        assert care(limited) == []
        assert ERASURES not in limited.lake.table(limited.table).metadata.refs

    def test_without_the_property_a_tombstone_is_no_request(self, topic: Topic) -> None:
        topic.land([record(0, b"a"), record(1, b"b", b"1")])
        assert care(topic, NOW + 1000 * DAY) == []
        assert ERASURES not in topic.lake.table(topic.table).metadata.refs

    def test_c30_a_property_of_one_topic_leaves_the_others_alone(self, topic: Topic) -> None:
        topic.create()
        topic.lake.set_properties(topic.table, {"firn.topic.orders.erase.max.ms": str(MAX)})
        topic.land([record(0, b"a"), record(1, b"b", b"1")])
        topic.lake.table(topic.table).append(
            kafka_rows([record(0, b"a"), record(1, b"b", b"1")], "clicks")
            .append_column("level", pa.nulls(2, pa.int32()))
            .append_column("delete_horizon", pa.nulls(2, pa.timestamp("us", tz="UTC")))
        )
        care(topic)
        assert [one.topic for one in erasures(topic).requests] == ["orders"]

    def test_c30_several_tombstones_of_a_key_are_one_row(self, limited: Topic) -> None:
        limited.land([record(0, b"a"), record(1, b"b", b"1")], [record(2, b"a", at=OLD + 7), record(3, b"b", b"2")])
        care(limited)
        assert asked(limited) == [(1, 0, 3, OLD + MAX)]

    def test_c30_partitions_are_told_apart(self, limited: Topic) -> None:
        limited.land(
            [record(0, b"a"), record(1, b"b", b"1")],
            [record(4, b"a", at=OLD + 7, partition=1), record(9, b"b", b"1", partition=1)],
        )
        care(limited)
        assert asked(limited) == [(1, 0, 1, OLD + MAX), (1, 1, 5, OLD + 7 + MAX)]

    def test_c4_the_log_end_is_a_request_of_its_own(self, limited: Topic) -> None:
        limited.land([record(0, b"a"), record(1, b"b")])
        assert [one.name for one in care(limited)] == ["request 1", "request 2"]
        assert asked(limited) == [(1, 0, 1, OLD + MAX), (2, 0, 2, OLD + MAX)]

    def test_c30_a_removed_tombstone_is_found_where_it_is_kept(self, limited: Topic) -> None:
        limited.land([record(0, b"a", b"1"), record(1, b"a"), record(2, b"b", b"1")]).clean("full")
        limited.clean("full", NOW + 2 * DAY, force=True)
        assert [row["offset"] for row in limited.removed_tombstones()] == [1]
        assert limited.offsets() == [2]
        care(limited, NOW + 2 * DAY)
        assert asked(limited) == [(1, 0, 2, OLD + MAX)]

    def test_c30_history_expires_as_the_table_says(self, limited: Topic) -> None:
        limited.lake.set_properties(limited.table, {"firn.erase.history": "expire"})
        limited.land([record(0, b"a"), record(1, b"b", b"1")])
        care(limited)
        assert [one.expire_history for one in erasures(limited).requests] == [True]

    def test_c30_a_deadline_that_has_passed_is_told(self, limited: Topic) -> None:
        limited.land([record(0, b"a", at=NOW - 2 * MAX), record(1, b"b", b"1")])
        care(limited)
        (found,) = status(limited.lake, limited.table, NOW)
        assert (found.state(NOW), found.deadline_ms, found.keys) == ("overdue", NOW - MAX, 1)


class TestNoTombstone:
    def test_c27_a_hidden_one_is_not_there(self, limited: Topic) -> None:
        limited.land([record(0, b"a"), record(1, b"b"), record(2, b"c", b"1")])
        delete_at(limited.lake, limited.table, places(limited.lake, limited.table, [0]))
        care(limited)
        assert asked(limited) == [(1, 0, 2, OLD + MAX)]

    def test_c10_one_of_a_transaction_counts_once_a_cleaning_has_decided_it(self, topic: Topic, tmp_path: Path) -> None:
        log = Log(topic, tmp_path).create(erase_max_ms=str(MAX))
        log.land("a=0", "b=0", "1 a=", "1 abort", "1 b=", "1 commit", "c=1")
        late = NOW + 20 * DAY
        care(topic, late)
        assert asked(topic) == []
        log.full(late)
        care(topic, late)
        assert [one.digest for one in erasures(topic).requests] == [digest(erasures(topic), b"b")]

    def test_c5_one_without_a_key_is_none(self, limited: Topic) -> None:
        limited.append([Record(0, None, None, 0, OLD), record(1, b"b", b"1")])
        care(limited)
        assert asked(limited) == []


class TestTables:
    SCHEMA = Schema(
        NestedField(1, "shop", StringType()),
        NestedField(2, "id", LongType()),
        NestedField(3, "op", StringType()),
        NestedField(4, "seq", LongType()),
        NestedField(5, "at", TimestampType()),
    )

    def adopted(self, lake: Lake, choice: Choice) -> str:
        name = "shop.changes"
        lake.create_namespace("shop")
        lake.catalog.create_table(name, self.SCHEMA, properties={"format-version": "2"})
        rows = [
            {"shop": shop, "id": number, "op": op, "seq": seq, "at": clock.from_ms(at).replace(tzinfo=None)}
            for seq, (shop, number, op, at) in enumerate(
                [("x", 1, "d", OLD), ("x", 2, "u", OLD), (None, 3, "d", OLD), ("y", 1, "d", YOUNG), ("z", 1, "u", OLD)]
            )
        ]
        lake.table(name).append(pa.Table.from_pylist(rows, schema=self.SCHEMA.as_arrow()))
        adopt(lake, name, choice, {"firn.erase.max.ms": str(MAX)})
        return name

    def test_c30_an_adopted_table_with_a_composite_key_and_a_condition(self, lake: Lake) -> None:
        name = self.adopted(lake, Choice(("shop", "id"), "seq", "at", tombstone="op = 'd'"))
        care_table(lake, name, NOW, remove=True, parts=PARTS)
        known = read_erasures(lake.table(name))
        batch = pa.record_batch({"shop": pa.array(["x"], pa.large_string()), "id": pa.array([1], pa.int64())})
        (wanted,) = digests_of(key_bytes(batch, ("shop", "id")), known.secret)
        assert [(one.digest, one.below, one.deadline_ms) for one in known.requests] == [(wanted, 1, OLD + MAX)]
        asked_again = ask(lake, name, [(b"x", b"1")], NOW, within_ms=MAX)
        assert asked_again.id == 2, "up to the log end"
        assert {one.digest for one in read_erasures(lake.table(name)).requests} == {wanted}

    @pytest.mark.parametrize(
        ("choice", "lacks"),
        [
            (Choice(("id",), "seq", None, tombstone="op = 'd'"), "a timestamp column"),
            (Choice(("id",), "seq", "at"), "a tombstone condition"),
        ],
    )
    def test_c26_a_table_that_cannot_tell_says_so(self, lake: Lake, choice: Choice, lacks: str) -> None:
        (found,) = care_table(lake, self.adopted(lake, choice), NOW, remove=True, parts=PARTS)
        assert (found.kind, found.exit_code) == (Kind.REQUEST, RefusedError.exit_code)
        assert lacks in found.reason

    def test_c26_nor_one_without_side_branches(self, limited: Topic) -> None:
        limited.land([record(0, b"a"), record(1, b"b", b"1")])
        limited.lake.set_properties(limited.table, {HAS_SIDE_BRANCHES: "false"})
        (found,) = care(limited)
        assert found.exit_code == RefusedError.exit_code
        assert HAS_SIDE_BRANCHES in found.reason

    def test_c20_a_damaged_file_holds_up_its_own_topic_partition_only(self, limited: Topic) -> None:
        limited.land([record(0, b"a"), record(1, b"b", b"1")])
        limited.land([record(0, b"a", partition=1), record(1, b"b", b"1", partition=1)])
        (segment,) = limited.segments(1)
        Path(segment.path.removeprefix("file://")).write_bytes(b"PAR1" + bytes(100) + b"PAR1")
        told = {one.name: one for one in care(limited)}
        assert told["orders-1"].exit_code == RefusedError.exit_code
        assert asked(limited) == [(1, 0, 1, OLD + MAX)]
        assert [one.partition for one in erasures(limited).looked] == [0]

    def test_it_is_hourly(self) -> None:
        assert Part.REQUESTS in HOURLY
