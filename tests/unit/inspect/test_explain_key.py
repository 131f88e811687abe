"""The rule that keeps each record of a key (C2 to C11), without a JVM."""

from datetime import datetime

import pytest

from firnlake.clock import from_ms
from firnlake.errors import RefusedError
from firnlake.iceberg.branches import REMOVED
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.explain.key import explain_key
from firnlake.table.topic_partition import TopicPartition
from tests.support import lakes
from tests.support.explained import HOUR, NEVER_FULL, create, dead
from tests.support.lakes import NOW, TABLE, Fates, append, only_plan, ready, row
from tests.support.publishing import publish

A_COPY = "written more than once: another copy is kept, if it is identical"
LAG = {"firn.min.compaction.lag.ms": str(HOUR)}


def why(lake: Lake, key: bytes | None = b"k", now_ms: int = NOW) -> dict[int, tuple[str, str, int | None]]:
    """Rule, words and end of the wait by offset, of every record of ``key`` that is there."""
    return {
        kept.record.offset: (kept.reason.rule, kept.reason.text, kept.reason.until_ms)
        for kept in explain_key(lake, TABLE, None if key is None else (key,), now_ms).kept
    }


def ago(milliseconds: int) -> datetime:
    return from_ms(NOW - milliseconds)


class TestKept:
    """Every record that readers see has one rule that keeps it."""

    def test_c3_the_newest_of_its_key_stays_and_c2_an_older_one_goes_with_the_lane_that_is_due(
        self, lake: Lake
    ) -> None:
        create(lake, {})
        append(lake, [row(0), row(1, b"other"), row(2)])
        assert why(lake) == {
            0: ("C2", "superseded by offset 2; lane full removes it, and is due", None),
            2: ("C3", "the newest record of its key", None),
        }

    def test_c2_an_older_one_waits_for_a_full_that_is_not_due(self, lake: Lake) -> None:
        create(lake, NEVER_FULL)
        append(lake, [row(0), row(2)])
        assert why(lake)[0] == ("C2", "superseded by offset 2; lane full removes it once it is due", None)

    def test_c14_a_clean_that_is_due_takes_what_it_supersedes_itself(self, lake: Lake) -> None:
        create(lake, NEVER_FULL | {"firn.clean.segments": "1"})
        append(lake, [row(0, level=3)])
        append(lake, [row(1, level=1), row(2, level=1)])
        assert why(lake) == {
            0: ("C2", "superseded by offset 2; lane full removes it once it is due", None),
            1: ("C2", "superseded by offset 2; lane clean removes it, and is due", None),
            2: ("C3", "the newest record of its key", None),
        }

    def test_c11_what_only_a_young_record_supersedes_stays_until_that_is_old_enough(self, lake: Lake) -> None:
        create(lake, LAG)
        append(lake, [row(0, timestamp=ago(2 * HOUR))])
        append(lake, [row(1, timestamp=ago(1000)), row(2, timestamp=ago(500))])
        rule, text, until = why(lake)[0]
        assert (rule, until) == ("C11", NOW - 500 + HOUR)
        assert text.startswith("superseded by offset 1, which is not cleaned yet: its segment is young")
        rule, text, until = why(lake)[1]
        assert (rule, until) == ("C11", NOW - 500 + HOUR)
        assert text.startswith("superseded by offset 2, but its segment is younger than min.compaction.lag.ms = 1h")
        assert why(lake, now_ms=NOW + HOUR)[1][0] == "C2"

    def test_c11_everything_past_the_first_young_segment_waits_with_it(self, lake: Lake) -> None:
        create(lake, LAG)
        young = lakes.append_file(lake, [row(0, timestamp=ago(1000))])
        append(lake, [row(1, timestamp=ago(2 * HOUR)), row(2, timestamp=ago(2 * HOUR))])
        rule, text, until = why(lake)[1]
        assert (rule, until) == ("C11", NOW - 1000 + HOUR)
        assert f"comes after segment orders-0 L0 [0..0] {young}, which is younger" in text

    def test_c11_active_segments_supersede_nothing(self, lake: Lake) -> None:
        create(lake, {"firn.active.segments": "1"})
        append(lake, [row(0)])
        append(lake, [row(1)])
        rule, text, until = why(lake)[0]
        assert (rule, until) == ("C11", None)
        assert text.endswith("offset 1, which is not cleaned yet: its segment is active (firn.active.segments = 1)")

    def test_c4_a_tombstone_at_the_log_end_stays(self, lake: Lake) -> None:
        create(lake, {})
        append(lake, [dead(0, NOW - 1, level=3)])
        assert why(lake)[0][0] == "C4"

    def test_c8_c9_the_stages_of_a_tombstone(self, lake: Lake) -> None:
        create(lake, NEVER_FULL)
        append(lake, [dead(0, level=3), row(9, b"end", level=3)])
        unset = "a tombstone without a delete horizon, which the next full clean sets: delete.retention.ms = 1d after"
        assert why(lake)[0] == ("C8", f"{unset} its time", None)
        lake.table(TABLE).delete()
        append(lake, [dead(0, NOW + HOUR, level=3), row(9, b"end", level=3)])
        assert why(lake)[0] == ("C9", "a tombstone before its delete horizon", NOW + HOUR)
        assert why(lake, now_ms=NOW + HOUR)[0] == (
            "C9", "a tombstone whose delete horizon has passed; lane full removes it once it is due", None,
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
            "C9", "a tombstone that supersedes offset 2: its delete horizon is set once that record is removed", None,
        )  # fmt: skip

    def test_c7_a_tombstone_waits_while_an_older_record_may_lie_where_full_can_not_look(self, lake: Lake) -> None:
        create(lake, NEVER_FULL | LAG)
        append(lake, [dead(5, NOW - HOUR, level=3), row(9, b"end", level=3)])
        append(lake, [row(2, b"late", timestamp=ago(1000))])
        assert why(lake)[5] == (
            "C7",
            "a tombstone that is not clean: the next full clean does not take offsets from 2 on",
            None,
        )

    def test_c5_a_record_without_a_key_waits_for_its_quarantine_and_at_the_log_end_for_a_newer_one(
        self, lake: Lake
    ) -> None:
        create(lake, {})
        append(lake, [row(0, None), row(1, b"k"), row(2, None)])
        found = why(lake, None)
        assert found[0] == ("C5", "without a key, so it is quarantined; lane full removes it, and is due", None)
        assert found[2][0] == "C4"
        assert why(lake) == {1: ("C3", "the newest record of its key", None)}

    def test_c19_a_topic_that_is_not_compacted_keeps_all_until_retention(self, lake: Lake) -> None:
        create(lake, {"firn.cleanup.policy": "delete", "firn.retention.ms": str(HOUR)})
        append(lake, [row(0), row(1)])
        append(lake, [row(9, b"end", timestamp=from_ms(NOW + HOUR))])
        assert {rule for rule, _, _ in why(lake).values()} == {"C19"}
        assert why(lake)[0][1] == "within the retention of its topic, which is not compacted"
        late = why(lake, now_ms=NOW + HOUR)[0][1]
        assert late == "past the retention of its topic; lane retain removes it, and is due"

    def test_c9_a_removed_tombstone_supersedes_what_turned_up_late(self, lake: Lake) -> None:
        create(lake, {})
        append(lake, [dead(5, NOW - 1, level=3), row(9, b"end", level=3)])
        removed_tombstones = [dead(5, NOW - 1, level=REMOVED), row(9, b"end")]
        publish(lake, ready(lake, only_plan(lake), removed_tombstones, Fates(tombstones_removed=1)).identifier)
        found = explain_key(lake, TABLE, (b"k",), NOW)
        assert (found.kept, [version.offset for version in found.removed_tombstones]) == ((), [5])
        append(lake, [row(2)])
        text = "superseded by offset 5, a removed tombstone that is restored; lane full removes it, and is due"
        assert why(lake) == {2: ("C2", text, None)}

    def test_c20_what_blocks_the_topic_partition_keeps_its_records(self, lake: Lake) -> None:
        create(lake, {"firn.null.keys": "fail"})
        append(lake, [row(0), row(1), row(2, None)])
        rule, text, _ = why(lake)[0]
        assert rule == "C20"
        assert "has records without a key (at least 1); allowed with firn.null.keys=fail: none" in text

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
        assert found[0] == ("C2", "superseded by offset 1; lane full removes it, and is due", None)
        waits = "but its segment exceeds the budgets of a plan, which takes 2 older segments first"
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
            0: ("C1", f"{A_COPY}; lane full removes it once it is due"),
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
            0: ("C1", A_COPY),
            3: ("C9", "a tombstone whose delete horizon has passed"),
        }
