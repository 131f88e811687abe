"""C30: with `firn.erase.max.ms` every tombstone becomes a request, once, by its own deadline."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, TimestampType

from expectations.certificate import certificate_page
from pipeline import clock
from pipeline.adopt import Choice, adopt
from pipeline.care import HOURLY, Garbage, Kind, Part, care_table
from pipeline.care.old_tombstones import old_tombstones
from pipeline.erase.ask import ask
from pipeline.erase.change import change_erasures
from pipeline.erase.digests import digests_of, key_bytes
from pipeline.erase.requests import Certificate, Erasures, Request
from pipeline.erase.stored import read_erasures
from pipeline.errors import FirnError, RefusedError
from pipeline.history import ancestors
from pipeline.lake import Lake
from pipeline.lake.branches import ERASURES, HAS_SIDE_BRANCHES
from pipeline.prove.certificate import content_of
from pipeline.prove.status import status
from pipeline.prove.verify import verify
from pipeline.sense import Lane
from tests.lanes.test_transactions import Log
from tests.support.erasing import erasures
from tests.support.lakes import together
from tests.support.row_deletes import delete_at, places
from tests.support.topics import DAY, NOW, Record, Topic, kafka_rows

MAX = 40 * DAY
OLD = NOW - 13 * DAY
"""A tombstone with this timestamp is old: a quarter of the time has passed, and a step."""
YOUNG = NOW - 9 * DAY
PARTS = frozenset({Part.REQUESTS})


def record(offset: int, key: bytes, value: bytes | None = None, at: int = OLD, partition: int = 0) -> Record:
    return Record(offset, key, value, partition, at)


@pytest.fixture
def limited(topic: Topic) -> Topic:
    """A topic whose tombstones become requests after ten days, to be fulfilled within forty."""
    return topic.create(erase_max_ms=str(MAX))


def care(topic: Topic, now: int = NOW, *, remove: bool = True) -> list[Garbage]:
    return care_table(topic.lake, topic.table, now, remove=remove, parts=PARTS)


def commits(topic: Topic) -> int:
    return len(list(ancestors(topic.lake.table(topic.table))))


def asked(topic: Topic) -> list[tuple[int, int, int, int]]:
    """Id, partition, offset and deadline of every row."""
    return [(one.id, one.partition, one.below, one.deadline_ms) for one in erasures(topic).requests]


def digest(known: Erasures, key: bytes) -> bytes:
    (found,) = digests_of(pa.array([key], pa.large_binary()), known.secret)
    assert found
    return found


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


class TestAgain:
    def test_c25_a_second_run_does_nothing(self, limited: Topic) -> None:
        limited.land([record(0, b"a"), record(1, b"b", at=YOUNG), record(2, b"c", b"1")])
        care(limited)
        before, known = commits(limited), erasures(limited)
        assert care(limited) == []
        assert care(limited, NOW + DAY // 24) == []
        assert (commits(limited), erasures(limited)) == (before, known)

    def test_c25_a_file_without_an_old_one_is_read_once(self, limited: Topic) -> None:
        limited.land([record(0, b"a", at=YOUNG), record(1, b"b", b"1")])
        assert care(limited) == []
        before = commits(limited)
        assert len(erasures(limited).looked) == 1
        assert care(limited) == []
        assert commits(limited) == before

    def test_c22_two_at_a_time_make_one_request_under_one_secret(self, limited: Topic) -> None:
        limited.land([record(0, b"a"), record(1, b"b", b"1")])
        done = together(lambda: care(limited), lambda: care(limited))
        assert [one for one in done if isinstance(one, FirnError)] == []
        care(limited)
        assert asked(limited) == [(1, 0, 1, OLD + MAX)]
        known = erasures(limited)
        assert [one.digest for one in known.requests] == [digest(known, b"a")]

    def test_c30_a_dry_run_only_counts(self, limited: Topic) -> None:
        limited.land([record(0, b"a"), record(1, b"b", b"1")])
        before = commits(limited)
        shown = care(limited, remove=False)
        assert commits(limited) == before
        assert erasures(limited) == Erasures()
        assert care(limited) == shown
        assert [one.kind for one in shown] == [Kind.REQUEST]

    def test_a_dry_run_of_all_care_tells_what_a_run_does(self, limited: Topic) -> None:
        """The commit that adds the request makes the snapshot before it old enough to go."""
        limited.land([record(0, b"a"), record(1, b"b", b"1")], [record(2, b"b", b"2")])
        limits = {"history.expire.max-snapshot-age-ms": "1", "history.expire.min-snapshots-to-keep": "1"}
        limited.lake.set_properties(limited.table, limits)
        later = clock.now_ms() + 30 * DAY
        shown = care_table(limited.lake, limited.table, later, remove=False)
        assert any(one.goes and one.kind is Kind.SNAPSHOTS for one in shown)
        assert care_table(limited.lake, limited.table, later, remove=True) == shown

    def test_c30_what_is_requested_makes_no_further_row(self, limited: Topic) -> None:
        limited.land([record(0, b"a"), record(1, b"b"), record(2, b"c", b"1")])
        ask(limited.lake, limited.table, [[b"a"]], NOW, within_ms=DAY)
        care(limited)
        assert asked(limited) == [(1, 0, 3, NOW + DAY), (2, 0, 2, OLD + MAX)]

    def test_c30_a_later_deadline_is_not_enough(self, limited: Topic) -> None:
        limited.land([record(0, b"a"), record(2, b"c", b"1")])
        ask(limited.lake, limited.table, [[b"a"]], NOW, within_ms=MAX)
        care(limited)
        assert asked(limited) == [(1, 0, 3, NOW + MAX), (2, 0, 1, OLD + MAX)]

    def test_c30_what_was_written_anew_is_no_new_tombstone(self, limited: Topic) -> None:
        limited.land([record(0, b"a"), record(1, b"b")], [record(2, b"c", b"1")])
        care(limited)
        before = asked(limited)
        limited.clean("full")
        care(limited)
        assert asked(limited) == before
        assert care(limited) == []

    def test_c30_an_old_tombstone_that_lands_late_is_found(self, limited: Topic) -> None:
        limited.land([record(0, b"a"), record(5, b"c", b"1")])
        care(limited)
        limited.append([record(3, b"b", at=OLD - 3 * DAY)])
        care(limited)
        assert asked(limited) == [(1, 0, 1, OLD + MAX), (2, 0, 4, OLD - 3 * DAY + MAX)]

    def test_c30_a_second_tombstone_of_a_key_has_its_own_deadline(self, limited: Topic) -> None:
        limited.land([record(0, b"a"), record(1, b"a", at=YOUNG), record(5, b"c", b"1")])
        care(limited)
        care(limited, NOW + 4 * DAY)
        assert asked(limited) == [(1, 0, 1, OLD + MAX), (2, 0, 2, YOUNG + MAX)]

    def test_c30_the_oldest_come_first_where_there_are_too_many(self, limited: Topic) -> None:
        limited.land(
            [record(0, b"a", at=OLD), record(1, b"b", at=OLD - 9), record(2, b"c", at=OLD - 5)],
            [record(3, b"d", at=OLD - 7), record(4, b"e", b"1")],
        )
        found = []
        for _ in range(3):
            old_tombstones(limited.lake, limited.table, NOW, remove=True, most=2)
            found.append(sorted(below for _, _, below, _ in asked(limited)))
        assert found == [[2, 4], [1, 2, 3, 4], [1, 2, 3, 4]]
        before = commits(limited)
        assert old_tombstones(limited.lake, limited.table, NOW, remove=True, most=2) == ([], False)
        assert commits(limited) == before


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


def test_c30_a_certified_request_covers_a_tombstone_that_lands_again(limited: Topic) -> None:
    limited.land([record(0, b"a"), record(1, b"b", b"1")])
    ask(limited.lake, limited.table, [[b"a"]], NOW, within_ms=MAX)
    certificate = Certificate(1, NOW, "{}")
    change_erasures(limited.lake, limited.table, lambda old: replace(old, certificates=(certificate,)))
    care(limited)
    assert [one.id for one in erasures(limited).requests] == [1]


def test_c30_from_tombstone_to_certificate(limited: Topic) -> None:
    """The clock of the machine, because snapshots have it."""
    now = clock.now_ms()
    old = now - 13 * DAY
    limited.lake.set_properties(limited.table, {"firn.erase.history": "expire"})
    limited.land(
        [record(0, b"a", b"1", old), record(1, b"b", b"1", old), record(2, b"a", None, old)],
        [record(3, b"a", b"2", old), record(4, b"d", None, old + 9), record(5, b"c", b"1", old)],
    )
    assert [one.name for one in care(limited, now) if one.kind is Kind.REQUEST] == ["request 1"]
    assert limited.clean(Lane.ERASE, now) == [], "it waits for others"
    limited.clean(Lane.ERASE, now + DAY)
    assert limited.offsets() == [1, 3, 5], "the newer record of the key stays"
    deadline = old + MAX
    half = now + (deadline - now) // 2
    (before,) = status(limited.lake, limited.table, now + DAY)
    assert (before.state(now + DAY), before.deadline_ms) == ("erased", deadline)
    found = care_table(limited.lake, limited.table, half + 1, remove=True)
    assert [one.reason.startswith("issued: ") for one in found if one.kind is Kind.CERTIFICATE] == [True]
    (after,) = status(limited.lake, limited.table, half + 1)
    assert after.state(half + 1) == "certified"
    assert limited.offsets() == [1, 3, 5]
    known = erasures(limited)
    (issued,) = known.certificates
    told = content_of(issued)
    assert (told["in_time"], told["deadline"]) == (True, clock.show_ms(deadline))
    assert told["topic_partitions"] == [{"topic": "orders", "partition": 0, "below_offset": 3}]
    expected = [(digest(known, b"a"), 3, deadline), (digest(known, b"d"), 5, deadline + 9)]
    assert [(one["digest"], one["below_offset"], one["deadline"]) for one in told["by_key"]] == [
        (key.hex(), below, clock.show_ms(until)) for key, below, until in sorted(expected)
    ]
    assert told["landed_again"] == [digest(known, b"a").hex()]
    page = certificate_page(told, "1.json")
    assert "Each key has an offset and a deadline of its own" in page
    again = verify(limited.lake, limited.table, [b"a"], limited.engine)
    assert (again.holds, again.landed_again, again.landed_before) == (True, True, True)
    gone = verify(limited.lake, limited.table, [b"d"], limited.engine)
    assert (gone.holds, gone.landed_again) == (True, False)
