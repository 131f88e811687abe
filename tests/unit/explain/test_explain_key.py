"""The rule that keeps each record of a key, and the commit that removed the others (C2 to C11), without a JVM."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from expectations.digests import digest
from pipeline.adopt import Choice, adopt
from pipeline.clock import from_ms
from pipeline.errors import RefusedError
from pipeline.explain import KeyExplanation, explain_key, key_of_digest, parse_key
from pipeline.lake import Lake, records
from pipeline.lake.branches import QUARANTINED, REMOVED
from pipeline.lake.topic_partition import TopicPartition
from pipeline.publish import publish
from tests.support import lakes
from tests.support.lakes import NOW, TABLE, TOPIC_PARTITION, Fates, Row, append, only_plan, ready, row

HOUR = 3_600_000
LAG = {"firn.min.compaction.lag.ms": str(HOUR)}
NEVER_FULL = {
    "firn.min.cleanable.dirty.ratio": "1",
    "firn.full.interval.ms": "-1",
    "firn.tombstone.fraction": "1",
}


def create(lake: Lake, properties: Mapping[str, str]) -> None:
    records.create(lake, TABLE, properties)


def why(lake: Lake, key: bytes | None = b"k", now_ms: int = NOW) -> dict[int, tuple[str, str, int | None]]:
    """Rule, words and end of the wait by offset, of every record of ``key`` that is there."""
    return {
        kept.record.offset: (kept.reason.rule, kept.reason.text, kept.reason.until_ms)
        for kept in explain_key(lake, TABLE, None if key is None else (key,), now_ms).kept
    }


def gone(found: KeyExplanation) -> list[tuple[int, str, str]]:
    """Offset, rule and words of every record that a commit took, newest commit first."""
    return [(one.record.offset, one.reason.rule, one.reason.text) for one in found.removed]


def ago(milliseconds: int) -> datetime:
    return from_ms(NOW - milliseconds)


def dead(offset: int, horizon_ms: int | None = None, level: int | None = None) -> Row:
    """A tombstone, stamped when it has a horizon."""
    return row(offset, value=None, level=level, delete_horizon=None if horizon_ms is None else from_ms(horizon_ms))


class TestKept:
    """Every record that readers see has one rule that keeps it."""

    def test_c3_the_newest_of_its_key_stays_and_c2_an_older_one_goes_with_the_lane_that_is_due(
        self, lake: Lake
    ) -> None:
        create(lake, {})
        append(lake, [row(0), row(1, b"other"), row(2)])
        assert why(lake) == {
            0: ("C2", "superseded by offset 2; the next full removes it, and is due", None),
            2: ("C3", "the newest record of its key", None),
        }

    def test_c2_an_older_one_waits_for_a_full_that_is_not_due(self, lake: Lake) -> None:
        create(lake, NEVER_FULL)
        append(lake, [row(0), row(2)])
        assert why(lake)[0] == ("C2", "superseded by offset 2; the next full removes it, and is not due", None)

    def test_c14_a_clean_that_is_due_takes_what_it_supersedes_itself(self, lake: Lake) -> None:
        create(lake, NEVER_FULL | {"firn.clean.segments": "1"})
        append(lake, [row(0, level=3)])
        append(lake, [row(1, level=1), row(2, level=1)])
        assert why(lake) == {
            0: ("C2", "superseded by offset 2; the next full removes it, and is not due", None),
            1: ("C2", "superseded by offset 2; the next clean removes it, and is due", None),
            2: ("C3", "the newest record of its key", None),
        }

    def test_c11_what_only_a_young_record_supersedes_stays_until_that_is_old_enough(self, lake: Lake) -> None:
        create(lake, LAG)
        append(lake, [row(0, timestamp=ago(2 * HOUR))])
        append(lake, [row(1, timestamp=ago(1000)), row(2, timestamp=ago(500))])
        rule, text, until = why(lake)[0]
        assert (rule, until) == ("C11", NOW - 500 + HOUR)
        assert text.startswith("no cleanable record supersedes it: offset 1 does not yet, because its segment is young")
        rule, text, until = why(lake)[1]
        assert (rule, until) == ("C11", NOW - 500 + HOUR)
        assert text.startswith(
            "superseded by offset 2, but its segment is younger than min.compaction.lag.ms = 3600000"
        )
        assert why(lake, now_ms=NOW + HOUR)[1][0] == "C2"

    def test_c11_everything_past_the_first_young_segment_waits_with_it(self, lake: Lake) -> None:
        create(lake, LAG)
        young = lakes.append_file(lake, [row(0, timestamp=ago(1000))])
        append(lake, [row(1, timestamp=ago(2 * HOUR)), row(2, timestamp=ago(2 * HOUR))])
        rule, text, until = why(lake)[1]
        assert (rule, until) == ("C11", NOW - 1000 + HOUR)
        assert f"lies past orders-0 L0 [0..0] {young}, which is younger" in text

    def test_c11_active_segments_supersede_nothing(self, lake: Lake) -> None:
        create(lake, {"firn.active.segments": "1"})
        append(lake, [row(0)])
        append(lake, [row(1)])
        rule, text, until = why(lake)[0]
        assert (rule, until) == ("C11", None)
        assert text.endswith("offset 1 does not yet, because its segment is active (firn.active.segments = 1)")

    def test_c4_a_tombstone_at_the_log_end_stays(self, lake: Lake) -> None:
        create(lake, {})
        append(lake, [dead(0, NOW - 1, level=3)])
        assert why(lake)[0][0] == "C4"

    def test_c8_c9_the_stages_of_a_tombstone(self, lake: Lake) -> None:
        create(lake, NEVER_FULL)
        append(lake, [dead(0, level=3), row(9, b"end", level=3)])
        assert why(lake)[0] == ("C8", "a tombstone without a delete horizon: the next full stamps it", None)
        lake.table(TABLE).delete()
        append(lake, [dead(0, NOW + HOUR, level=3), row(9, b"end", level=3)])
        assert why(lake)[0] == ("C9", "a tombstone before its delete horizon", NOW + HOUR)
        assert why(lake, now_ms=NOW + HOUR)[0] == (
            "C9", "a tombstone whose delete horizon has passed; the next full removes it, and is not due", None,
        )  # fmt: skip

    def test_c8_a_stamp_that_a_writer_landed_counts_for_nothing(self, lake: Lake) -> None:
        create(lake, NEVER_FULL)
        append(lake, [dead(0, NOW - HOUR), row(9, b"end")])
        assert why(lake)[0][0] == "C8"

    def test_c9_a_tombstone_outlives_what_it_supersedes(self, lake: Lake) -> None:
        create(lake, NEVER_FULL)
        append(lake, [dead(5, NOW - HOUR, level=3), row(9, b"end", level=3)])
        append(lake, [row(2)])
        assert why(lake)[5] == (
            "C9", "a tombstone that supersedes offset 2: its delete horizon starts when that record is removed", None,
        )  # fmt: skip

    def test_c7_a_tombstone_waits_while_an_older_record_may_lie_where_full_can_not_look(self, lake: Lake) -> None:
        create(lake, NEVER_FULL | LAG)
        append(lake, [dead(5, NOW - HOUR, level=3), row(9, b"end", level=3)])
        append(lake, [row(2, b"late", timestamp=ago(1000))])
        assert why(lake)[5] == ("C7", "a tombstone that is not clean: older offsets, from 2, wait outside full", None)

    def test_c5_a_record_without_a_key_waits_for_its_quarantine_and_at_the_log_end_for_a_newer_one(
        self, lake: Lake
    ) -> None:
        create(lake, {})
        append(lake, [row(0, None), row(1, b"k"), row(2, None)])
        found = why(lake, None)
        assert found[0] == (
            "C5",
            "without a key, so it is quarantined; the next full removes it, and is due",
            None,
        )
        assert found[2][0] == "C4"
        assert why(lake) == {1: ("C3", "the newest record of its key", None)}

    def test_c19_a_topic_that_is_not_compacted_keeps_all_until_retention(self, lake: Lake) -> None:
        create(lake, {"firn.cleanup.policy": "delete", "firn.retention.ms": str(HOUR)})
        append(lake, [row(0), row(1)])
        append(lake, [row(9, b"end", timestamp=from_ms(NOW + HOUR))])
        assert {rule for rule, _, _ in why(lake).values()} == {"C19"}
        assert why(lake)[0][1] == "within the retention of its topic, which is not compacted"
        late = why(lake, now_ms=NOW + HOUR)[0][1]
        assert late == "past the retention of its topic; the next retain removes it, and is due"

    def test_c9_a_removed_tombstone_supersedes_what_turned_up_late(self, lake: Lake) -> None:
        create(lake, {})
        append(lake, [dead(5, NOW - 1, level=3), row(9, b"end", level=3)])
        removed_tombstones = [dead(5, NOW - 1, level=REMOVED), row(9, b"end")]
        publish(lake, ready(lake, only_plan(lake), removed_tombstones, Fates(tombstones_removed=1)).identifier)
        found = explain_key(lake, TABLE, (b"k",), NOW)
        assert (found.kept, [version.offset for version in found.removed_tombstones]) == ((), [5])
        append(lake, [row(2)])
        text = "superseded by offset 5, a removed tombstone that is restored; the next full removes it, and is due"
        assert why(lake) == {2: ("C2", text, None)}

    def test_c20_what_blocks_the_topic_partition_keeps_its_records(self, lake: Lake) -> None:
        create(lake, {"firn.null.keys": "fail"})
        append(lake, [row(0), row(1), row(2, None)])
        rule, text, _ = why(lake)[0]
        assert rule == "C20"
        assert "1 records without a key; allowed with firn.null.keys=fail: none" in text

    def test_c17_a_segment_that_is_too_large_and_one_behind_it(self, lake: Lake) -> None:
        create(lake, {"firn.plan.max.records": "2"})
        append(lake, [row(0), row(1), row(2)])
        append(lake, [row(3)])
        rule, text, _ = why(lake)[0]
        assert (rule, "needs 3 records; available: 2 (firn.plan.max.records)" in text) == ("C17", True)

    def test_c17_what_does_not_fit_waits_behind_older_ones(self, lake: Lake) -> None:
        create(lake, {"firn.plan.max.records": "2"})
        for offset in range(4):
            append(lake, [row(offset)])
        found = why(lake)
        assert found[0] == ("C2", "superseded by offset 1; the next full removes it, and is due", None)
        waits = "but its segment exceeds the budgets of a plan that takes the 2 older segments first"
        assert found[2][:2] == ("C17", f"superseded by offset 3, {waits}")

    def test_c6_keys_are_bytes_and_an_empty_key_is_a_key(self, lake: Lake) -> None:
        create(lake, {})
        append(lake, [row(0, b""), row(1, None), row(2, b"\xff\x00"), row(3, b"k" * 100 + b"1"), row(4, b"k" * 100)])
        for key, offset in ((b"", 0), (None, 1), (b"\xff\x00", 2), (b"k" * 100 + b"1", 3), (b"k" * 100, 4)):
            assert list(why(lake, key)) == [offset]
        assert why(lake, b"\xff") == {}

    def test_a_key_in_two_partitions_is_two_keys(self, lake: Lake) -> None:
        create(lake, {})
        append(lake, [row(0), row(7, partition=1), row(8, b"x")])
        assert {rule for rule, _, _ in why(lake).values()} == {"C3"}
        only = explain_key(lake, TABLE, (b"k",), NOW, TopicPartition("orders", 1))
        assert [kept.record.offset for kept in only.kept] == [7]

    def test_an_unknown_key_and_an_empty_table_are_no_error(self, lake: Lake) -> None:
        create(lake, {})
        assert explain_key(lake, TABLE, (b"k",), NOW).kept == ()
        append(lake, [row(0)])
        assert explain_key(lake, TABLE, (b"other",), NOW).kept == ()

    def test_c26_an_unknown_topic_partition_is_refused(self, lake: Lake) -> None:
        create(lake, {})
        append(lake, [row(0)])
        with pytest.raises(RefusedError, match=r"holds no segment of orders-7; found: orders-0$"):
            explain_key(lake, TABLE, (b"k",), NOW, TopicPartition("orders", 7))


class TestRepeats:
    """An at-least-once writer repeats records: one copy stays (C1)."""

    def test_c1_a_further_copy_goes_and_the_one_that_was_cleaned_furthest_stays(self, lake: Lake) -> None:
        create(lake, NEVER_FULL)
        append(lake, [row(0, level=3), row(9, b"end", level=3)])
        append(lake, [row(0), row(10, b"end")])
        kept = explain_key(lake, TABLE, (b"k",), NOW).kept
        assert {one.record.level: (one.reason.rule, one.reason.text) for one in kept} == {
            0: ("C1", "written more than once: another copy is kept; the next full removes it, and is not due"),
            3: ("C3", "the newest record of its key"),
        }

    def test_c1_c5_copies_within_a_segment_are_one_record(self, lake: Lake) -> None:
        create(lake, {})
        append(lake, [row(0, None), row(0, None), row(1, b"end")])
        kept = explain_key(lake, TABLE, None, NOW).kept
        assert sorted(one.reason.rule for one in kept) == ["C1", "C5"]

    def test_c1_a_tombstone_that_is_there_twice_supersedes_nothing_by_it(self, lake: Lake) -> None:
        create(lake, NEVER_FULL)
        append(lake, [dead(5, NOW - HOUR, level=3), row(9, b"end", level=3)])
        append(lake, [dead(5)])
        kept = explain_key(lake, TABLE, (b"k",), NOW).kept
        assert {one.record.level: (one.reason.rule, one.reason.text.partition(";")[0]) for one in kept} == {
            0: ("C1", "written more than once: another copy is kept"),
            3: ("C9", "a tombstone whose delete horizon has passed"),
        }


class TestAdopted:
    """Tables with columns of their own, whatever makes their tombstones."""

    NAME = "shop.customers"
    SCHEMA = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "lsn", LongType()),
        NestedField(3, "op", StringType()),
        NestedField(4, "amount", LongType()),
    )

    def adopted(self, lake: Lake, tombstone: str, **properties: str) -> None:
        lake.create_namespace("shop")
        lake.catalog.create_table(self.NAME, self.SCHEMA, properties={"format-version": "2"})
        adopt(lake, self.NAME, Choice(("id",), "lsn", tombstone=tombstone), NEVER_FULL | properties)

    def append(self, lake: Lake, *rows: dict[str, Any]) -> None:
        table = lake.table(self.NAME)
        table.append(
            pa.Table.from_pylist([{"id": 1, "level": 3} | one for one in rows], schema=table.schema().as_arrow())
        )

    def tombstones(self, lake: Lake) -> list[int]:
        kept = explain_key(lake, self.NAME, (b"1",), NOW).kept
        return [one.record.offset for one in kept if one.record.tombstone]

    @pytest.mark.parametrize(
        ("condition", "expected"),
        [
            ("op = 'd'", [1]),
            ("not op <> 'd'", [1]),
            ("op not in ('u', 'x')", [1]),
            ("not (op in ('u', 'x'))", [1]),
            ("op in ('d', 'it''s') and not amount is null", [1]),
            ("op like 'd%' or amount between 6 and 7", [1, 2]),
            ("amount is null", [3]),
            ("amount > 7", []),
            ("op = 'zz'", []),
        ],
    )
    def test_tombstones_are_told_by_any_condition(self, lake: Lake, condition: str, expected: list[int]) -> None:
        self.adopted(lake, condition)
        self.append(
            lake,
            {"lsn": 1, "op": "d", "amount": 5},
            {"lsn": 2, "op": "u", "amount": 6},
            {"lsn": 3, "op": None, "amount": None},
            {"lsn": 8, "id": 2, "op": "d", "amount": 8},
        )
        assert self.tombstones(lake) == expected

    def test_c8_c9_the_stages_of_a_tombstone_by_a_condition(self, lake: Lake) -> None:
        self.adopted(lake, "op = 'd'")
        self.append(lake, {"lsn": 1, "op": "d"}, {"lsn": 9, "id": 2, "op": "u"})
        (kept,) = explain_key(lake, self.NAME, (b"1",), NOW).kept
        assert (kept.reason.rule, kept.reason.until_ms) == ("C8", None)
        lake.table(self.NAME).delete()
        self.append(lake, {"lsn": 1, "op": "d", "delete_horizon": from_ms(NOW + HOUR)}, {"lsn": 9, "id": 2, "op": "u"})
        (kept,) = explain_key(lake, self.NAME, (b"1",), NOW).kept
        assert (kept.reason.rule, kept.reason.until_ms) == ("C9", NOW + HOUR)

    def test_a_column_that_was_renamed_since_still_makes_tombstones(self, lake: Lake) -> None:
        self.adopted(lake, "op = 'd'")
        self.append(lake, {"lsn": 1, "op": "d"}, {"lsn": 9, "id": 2, "op": "u"})
        with lake.table(self.NAME).update_schema() as update:
            update.rename_column("op", "operation")
        assert self.tombstones(lake) == [1]


class TestRemoved:
    """The commit that removed a record, as far back as snapshots reach."""

    @pytest.fixture
    def twice(self, lake: Lake) -> list[int]:
        """Two full cleans: offset 0 goes with the first, 1 with the second, 2 stays; the ids of their snapshots."""
        create(lake, {})
        append(lake, [row(0), row(1), row(9, b"end")])
        first = publish(lake, ready(lake, only_plan(lake), [row(1), row(9, b"end")], Fates(superseded=1)).identifier)
        append(lake, [row(10)])
        kept = [row(9, b"end"), row(10)]
        second = publish(lake, ready(lake, only_plan(lake), kept, Fates(superseded=1)).identifier)
        return [first.snapshot_id, second.snapshot_id]

    def test_c2_each_commit_that_took_a_record_is_named(self, lake: Lake, twice: list[int]) -> None:
        found = explain_key(lake, TABLE, (b"k",), NOW)
        assert [kept.record.offset for kept in found.kept] == [10]
        assert gone(found) == [(1, "C2", "superseded by offset 10"), (0, "C2", "superseded by offset 1")]
        assert [one.commit.snapshot_id for one in found.removed] == twice[::-1]
        assert {(one.commit.lane, one.commit.topic_partition) for one in found.removed} == {("full", "orders-0")}
        assert all(one.commit.plan and one.commit.at_ms for one in found.removed)
        assert found.reach == "searched all 2 commits that removed records"

    @pytest.mark.usefixtures("twice")
    def test_a_key_that_lost_nothing_and_another_partition_have_no_removals(self, lake: Lake) -> None:
        assert gone(explain_key(lake, TABLE, (b"end",), NOW)) == []
        append(lake, [row(0, partition=1)])
        assert gone(explain_key(lake, TABLE, (b"k",), NOW, TopicPartition("orders", 1))) == []
        assert len(gone(explain_key(lake, TABLE, (b"k",), NOW, TOPIC_PARTITION))) == 2

    @pytest.mark.usefixtures("twice")
    def test_the_look_back_is_bounded_and_says_so(self, lake: Lake) -> None:
        found = explain_key(lake, TABLE, (b"k",), NOW, commits=1)
        assert [one.record.offset for one in found.removed] == [1]
        assert found.reach == "searched the newest 1 commits that removed records; --commits searches further"

    def test_it_stops_where_snapshots_are_expired(self, lake: Lake, twice: list[int]) -> None:
        table = lake.table(TABLE)
        before = table.snapshot_by_id(twice[1])
        assert before is not None
        assert before.parent_snapshot_id is not None
        table.maintenance.expire_snapshots().by_id(before.parent_snapshot_id).commit()
        found = explain_key(lake, TABLE, (b"k",), NOW)
        assert gone(found) == []
        assert found.reach == f"what snapshot {twice[1]} removed is unknown: the snapshot before it has expired"

    def test_it_stops_where_data_files_are_deleted(self, lake: Lake, twice: list[int]) -> None:
        for removed in explain_key(lake, TABLE, (b"k",), NOW).removed[1:]:
            lakes.on_disk(removed.record.path).unlink()
        found = explain_key(lake, TABLE, (b"k",), NOW)
        assert [one.record.offset for one in found.removed] == [1]
        assert found.reach == f"what snapshot {twice[0]} removed is unknown: its data files are deleted"

    def test_c9_a_removed_tombstone_and_c5_a_quarantined_record(self, lake: Lake) -> None:
        create(lake, {})
        append(lake, [dead(0, NOW - 1, level=3), row(1, None, level=3), row(2, b"end", level=3)])
        kept = [row(1, None, level=QUARANTINED), row(2, b"end")]
        fates = Fates(tombstones_removed=1, quarantined=1)
        publish(lake, ready(lake, only_plan(lake), kept, fates).identifier)
        assert gone(explain_key(lake, TABLE, (b"k",), NOW)) == [
            (0, "C9", "a tombstone whose delete horizon had passed")
        ]
        assert gone(explain_key(lake, TABLE, None, NOW)) == [(1, "C5", "without a key: quarantined")]

    @pytest.mark.usefixtures("twice")
    def test_what_others_rewrote_is_not_firns(self, lake: Lake) -> None:
        lake.table(TABLE).delete("offset = 10")
        found = explain_key(lake, TABLE, (b"k",), NOW)
        assert found.kept == ()
        assert len(found.removed) == 2


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("k", b"k"), ("", b""), ("größe", "größe".encode()), ("a:b", b"a:b"), ("hex:00ff", b"\x00\xff"), ("hex:", b""),
        ("base64:AP8=", b"\x00\xff"), ("text:hex:00", b"hex:00"), ("null:", None), ("null", b"null"),
        ("null:x", b"null:x"), ("text:null:", b"null:"),
    ],
)  # fmt: skip
def test_keys_are_text_unless_they_say_otherwise(text: str, key: bytes | None) -> None:
    assert parse_key([text]) == (None if key is None else (key,))


@pytest.mark.parametrize("text", ["hex:0", "hex:xy", "base64:A", "base64:$$$$"])
def test_c26_a_key_that_is_not_what_it_says_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match=r"key '.*' is not (hex|base64): .*; allowed: text, "):
        parse_key([text])


class TestDigests:
    """A report that shows no keys names them by digests; the key can be found again."""

    def test_the_digest_of_a_report_finds_the_key(self, lake: Lake) -> None:
        create(lake, {})
        append(lake, [row(0), row(1, b"other"), row(2, None), row(3, b"")])
        for key in (b"k", b"other", b""):
            assert key_of_digest(lake, TABLE, digest([key])) == (key,)
        assert key_of_digest(lake, TABLE, digest([b"k"]), TOPIC_PARTITION) == (b"k",)

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            (digest([b"gone"]), "no key in table lake.records has the digest sha256:"),
            ("sha256:", "allowed: sha256: and 16 lower-case hexadecimal digits"),
            ("sha256:" + "g" * 16, "allowed: sha256: and 16 lower-case hexadecimal digits"),
        ],
    )
    def test_c26_any_other_is_refused(self, lake: Lake, text: str, reason: str) -> None:
        create(lake, {})
        append(lake, [row(0)])
        with pytest.raises(RefusedError, match=reason):
            key_of_digest(lake, TABLE, text)

    def test_a_key_of_several_columns_has_one_digest(self) -> None:
        assert digest([b"a", b"bc"]) != digest([b"ab", b"c"])
        assert digest([b"a"]) == "sha256:ca978112ca1bbdca"
