"""C30: lane `erase` and records of other kinds: tombstones, transactions, hidden ones, keys of any type."""

from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, DecimalType, IntegerType, LongType, NestedField, StringType

from firnlake.engine.engine import Engine
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Choice, adopt
from firnlake.inspect.explain.key import explain_key
from firnlake.job.lane import Lane
from firnlake.lanes.erasure.ask import ask
from firnlake.lanes.erasure.requests import Matcher
from firnlake.run import run
from firnlake.table.segment import TAIL
from tests.lanes.test_transactions import Log
from tests.support.erasing import HOUR, erasures, progress, request
from tests.support.row_deletes import delete, deletes
from tests.support.sabotage import refused
from tests.support.topics import NOW, Record, Topic, updates


class TestTombstones:
    def test_c30_removed_tombstones_of_the_key_go_too(self, topic: Topic) -> None:
        topic.create(delete_retention_ms="0")
        topic.land([*updates("a=1"), Record(1, b"a", None), Record(2, b"b", None), *updates("c=1", start=3)])
        topic.clean("full")
        topic.clean("full", NOW + 1, force=True)
        assert [row["offset"] for row in topic.removed_tombstones()] == [1, 2]
        request(topic, b"a")
        (counts,) = topic.clean("erase", force=True)
        assert [row["offset"] for row in topic.removed_tombstones()] == [2]
        assert (counts.erased, counts.records_in, counts.records_out) == (1, 1, 0)
        assert topic.offsets() == [3]

    def test_c9_an_older_value_does_not_come_back_when_its_tombstone_is_erased(self, topic: Topic) -> None:
        topic.create(delete_retention_ms="0")
        topic.land([*updates("a=1"), Record(1, b"a", None), *updates("c=1", start=2)])
        topic.clean("full")
        topic.clean("full", NOW + 1, force=True)
        request(topic, b"a")
        topic.clean("erase", force=True)
        topic.append(updates("a=1"))
        topic.run(NOW + 2, until_idle=True)
        assert topic.offsets() == [2]

    def test_c8_a_kept_tombstone_keeps_its_horizon(self, topic: Topic) -> None:
        topic.land([*updates("a=1", "b=1"), Record(2, b"b", None), *updates("c=1", start=3)])
        topic.clean("full")
        before = topic.horizons()
        request(topic, b"a")
        topic.clean("erase", NOW + 1, force=True)
        assert topic.horizons() == before != {}
        assert topic.levels() == [TAIL]


class TestRowDeletes:
    """C27: a file holds what row-level deletes hide, so a requested record that nobody sees goes as well."""

    def test_c30_a_hidden_record_of_the_key_goes(self, topic: Topic) -> None:
        topic.land(updates("a=1", "b=1", "a=2"), updates("c=1", start=3))
        delete(topic, 0)
        before = {segment.path for segment in topic.segments()}
        request(topic, b"a")
        (counts,) = topic.clean("erase", force=True)
        assert topic.offsets() == [1, 3]
        assert (counts.records_in, counts.records_out, counts.erased, counts.deleted) == (2, 1, 1, 1)
        assert len(before & {segment.path for segment in topic.segments()}) == 1
        assert deletes(topic) == set(), "nothing needs it any more"
        assert [one.records for one in erasures(topic).destroyed] == [2]

    def test_c30_a_file_is_written_anew_for_a_hidden_record_alone(self, topic: Topic) -> None:
        topic.land(updates("a=1", "b=1"), updates("c=1", start=2))
        delete(topic, 0)
        request(topic, b"a")
        (counts,) = topic.clean("erase", force=True)
        assert topic.offsets() == [1, 2]
        assert (counts.records_in, counts.records_out, counts.erased, counts.deleted) == (1, 1, 0, 1)
        assert [one.records for one in erasures(topic).destroyed] == [1]

    def test_c27_a_file_without_the_key_keeps_its_deletes(self, topic: Topic) -> None:
        topic.land(updates("b=1", "c=1"), updates("a=1", start=2), updates("d=1", start=3))
        delete(topic, 0)
        request(topic, b"a")
        topic.clean("erase", force=True)
        assert topic.offsets() == [1, 3]
        assert len(deletes(topic)) == 1

    def test_c4_a_hidden_log_end_blocks_the_segment_of_what_readers_see_last(self, topic: Topic) -> None:
        topic.land(updates("a=1"), updates("a=2", "b=1", start=1))
        delete(topic, 2)
        request(topic, b"a")
        topic.clean("erase", force=True)
        assert topic.offsets() == [1], "offset 1 may be the end that readers see"
        topic.land(updates("c=1", start=3))
        topic.clean("erase", force=True)
        assert topic.offsets() == [3]

    def test_c4_segments_that_may_be_hidden_whole_block_what_is_next_to_them(self, topic: Topic) -> None:
        topic.land(updates("a=1"), updates("b=1", start=1))
        delete(topic, 1)
        request(topic, b"a")
        assert topic.plans("erase", force=True) == []
        topic.land(updates("c=1", start=2))
        topic.clean("erase", force=True)
        assert topic.offsets() == [2]

    def test_c30_a_hidden_record_left_in_place_is_noticed(self, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
        topic.land(updates("a=1", "b=1"), updates("c=1", start=2))
        delete(topic, 0)
        request(topic, b"a")
        plans = topic.plans("erase", force=True)
        monkeypatch.setattr(Matcher, "matches", lambda _, keys, __: np.zeros(len(keys), np.bool_))
        refused(topic, plans)


class TestTransactions:
    COMMIT_KEY = b"\0\0\0\1"
    """The key of a control record that commits: its version and its type."""

    def test_c10_a_control_record_has_no_user_key(self, topic: Topic, tmp_path: Path) -> None:
        log = Log(topic, tmp_path).land("1 a=1", "1 commit", "b=1")
        request(topic, self.COMMIT_KEY, b"a")
        topic.clean("erase", force=True)
        assert log.offsets() == [1, 2]

    def test_c10_what_is_undecided_waits(self, topic: Topic, tmp_path: Path) -> None:
        log = Log(topic, tmp_path).land("a=1", "b=1").land("1 a=2", "a=3", "c=1")
        request(topic, b"a")
        topic.clean("erase", force=True)
        assert log.offsets() == [1, 2, 3, 4]
        assert progress(topic).before == 2
        log.land("1 abort", "d=1")
        topic.clean("erase")
        assert log.offsets() == [1, 4, 5, 6]


class TestExplained:
    def reasons(self, topic: Topic, key: bytes, now: int = NOW) -> list[tuple[int, str, str]]:
        found = explain_key(topic.lake, topic.table, (key,), now)
        told = [(one.record, one.reason) for one in found.kept] + [(one.record, one.reason) for one in found.removed]
        return [(record.offset, reason.rule, reason.text) for record, reason in told]

    def test_c30_a_record_that_waits_for_its_erasure_says_so(self, topic: Topic) -> None:
        topic.land(updates("a=1", "b=1"))
        request(topic, b"a")
        ((offset, rule, text),) = self.reasons(topic, b"a")
        assert (offset, rule) == (0, "C30")
        assert text.startswith("its key is to be erased; requests to erase a key wait for more requests")
        ((_, _, text),) = self.reasons(topic, b"a", NOW + HOUR)
        assert text == "its key is to be erased; lane erase removes it, and is due"

    def test_c30_what_is_in_the_way_is_named(self, topic: Topic) -> None:
        topic.create(min_compaction_lag_ms="60000").land([Record(0, b"a", b"1", timestamp_ms=NOW)])
        request(topic, b"a")
        ((_, rule, text),) = self.reasons(topic, b"a")
        assert rule == "C11"
        assert "its key is to be erased, but segment" in text

    def test_c30_an_erased_record_is_told_as_such(self, topic: Topic) -> None:
        topic.land(updates("a=1", "b=1"), updates("a=2", start=2))
        request(topic, b"a")
        topic.land(updates("b=2", start=3))
        topic.clean("erase", force=True)
        assert self.reasons(topic, b"a") == [(0, "C30", "erased on request"), (2, "C30", "erased on request")]


class TestAdopted:
    """Keys of other types and of several columns, in tables that Firn did not make."""

    SCHEMA = Schema(
        NestedField(1, "id", IntegerType()),
        NestedField(2, "amount", DecimalType(9, 2)),
        NestedField(3, "day", DateType()),
        NestedField(4, "name", StringType()),
        NestedField(5, "seq", LongType()),
        NestedField(6, "body", StringType()),
    )

    @pytest.mark.parametrize("names", [("id",), ("amount",), ("day",), ("name",), ("id", "amount", "day", "name")])
    def test_c30_keys_of_any_type(self, lake: Lake, engine: Engine, names: tuple[str, ...]) -> None:
        identifier = f"adopted.{'_'.join(names)}"
        lake.catalog.create_namespace_if_not_exists("adopted")
        table = lake.catalog.create_table(identifier, self.SCHEMA)
        values = [(-1, Decimal("-0.05"), date(1969, 12, 30), "ä"), (7, Decimal("7.00"), date(2026, 1, 1), "b")]
        columns = ("id", "amount", "day", "name")
        rows = [
            dict(zip(columns, values[number % 2], strict=True)) | {"seq": number, "body": "x"} for number in range(4)
        ]
        table.append(pa.Table.from_pylist(rows, schema=schema_to_pyarrow(table.schema())))
        adopt(lake, identifier, Choice(names, "seq"))
        key = tuple(str(rows[0][name]).encode() for name in names)
        asked = ask(lake, identifier, [key], NOW)
        assert asked.keys == 1
        done = list(run(lake, identifier, NOW, lambda _: engine, (Lane.ERASE,), force=True))
        assert [one.failures for one in done if one.failures] == []
        left = lake.table(identifier).scan().to_arrow().to_pylist()
        assert sorted(row["seq"] for row in left) == [1, 3]
