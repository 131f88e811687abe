"""`firn land` into tables with columns of their own."""

from collections import defaultdict
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnlake.compact.compact import compact
from firnlake.engine.local import LocalEngine
from firnlake.errors import RefusedError, UnavailableError
from firnlake.iceberg.catalog import Lake
from firnlake.ingest import land_own
from firnlake.ingest.adopt import Choice, adopt
from firnlake.ingest.land import land
from firnlake.ingest.own_file import create_from
from firnlake.ingest.release import release
from firnlake.validate.validate import validate
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.adopted import BY_ENTITY, BY_ID, append, change, event, validated
from tests.support.examples import bounded
from tests.support.lakes import NOW
from tests.support.publishing import publish
from tests.support.watched import Nth, watched

TABLE = "shop.orders"
BY_TIME = Choice(("id",), "ts")
START = datetime(2026, 11, 1, 9)  # noqa: DTZ001  # as the table has it
NINE = 1_793_523_600_000_000
"""START, taken as UTC, in microseconds since the epoch."""


def file(folder: Path, *rows: tuple[object, int, str], name: str = "own.parquet") -> Path:
    """A file of records: id, microseconds after START, and status."""
    ids, micros, states = zip(*rows, strict=True) if rows else ((), (), ())
    times = pa.array([START + timedelta(microseconds=one) for one in micros], pa.timestamp("us"))
    pq.write_table(pa.table({"id": pa.array(ids), "ts": times, "status": pa.array(states, pa.string())}), folder / name)
    return folder / name


def text(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def rows(lake: Lake, table: str = TABLE) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.table(table).scan().to_arrow().sort_by("offset").to_pylist()
    return found


def places(lake: Lake) -> list[tuple[int, int, str]]:
    """Offset after START, id and status of each record."""
    return [(row["offset"] - NINE, row["id"], row["status"]) for row in rows(lake)]


def clean(lake: Lake, now_ms: int) -> None:
    (outcome,) = compact(lake, [lakes.only_plan(lake, now_ms=now_ms, identifier=TABLE)], LocalEngine())
    (judged,) = validate(lake, [outcome.stage], LocalEngine())
    assert judged.passed, judged.failure
    publish(lake, outcome.stage)


class TestTimes:
    """Offsets made from times."""

    def test_a_later_file_follows(self, lake: Lake, tmp_path: Path) -> None:
        create_from(lake, TABLE, file(tmp_path, (1, 0, "a"), (2, 0, "a")), BY_TIME)
        landed = land(lake, TABLE, [file(tmp_path, (1, 10, "b"), (3, 20, "a"))])
        assert (landed.files, landed.segments, landed.records, landed.known, landed.empty) == (1, 1, 2, 0, 0)
        assert places(lake) == [(0, 1, "a"), (1, 2, "a"), (10, 1, "b"), (20, 3, "a")]

    def test_a_record_whose_number_is_taken_has_the_next_free_one(self, lake: Lake, tmp_path: Path) -> None:
        create_from(lake, TABLE, file(tmp_path, (1, 0, "a"), (2, 0, "a"), (3, 3, "a")), BY_TIME)
        land(lake, TABLE, [file(tmp_path, (4, 0, "a"), (5, 0, "a"))])
        assert places(lake) == [(0, 1, "a"), (1, 2, "a"), (2, 4, "a"), (3, 3, "a"), (4, 5, "a")]

    def test_what_the_table_has_is_left_out(self, lake: Lake, tmp_path: Path) -> None:
        first = [(1, 0, "a"), (2, 0, "a"), (1, 5, "b")]
        create_from(lake, TABLE, file(tmp_path, *first), BY_TIME)
        whole = file(tmp_path, *first, (2, 0, "other"), (3, 7, "a"))
        landed = land(lake, TABLE, [whole])
        assert (landed.records, landed.known, landed.repeated) == (2, 3, 0)
        again = land(lake, TABLE, [whole])
        assert (again.records, again.known, again.repeated, again.empty) == (0, 5, 1, 0)
        assert places(lake) == [(0, 1, "a"), (1, 2, "a"), (2, 2, "other"), (5, 1, "b"), (7, 3, "a")]

    def test_late_records_get_their_place_and_the_newest_stays(self, lake: Lake, tmp_path: Path) -> None:
        create_from(lake, TABLE, file(tmp_path, (1, 10, "new"), (2, 10, "a")), BY_TIME)
        land(lake, TABLE, [file(tmp_path, (1, 5, "late"), (2, 15, "b"))])
        publish(lake, validated(lake, TABLE))
        assert places(lake) == [(10, 1, "new"), (15, 2, "b")]
        assert land(lake, TABLE, [file(tmp_path, (1, 10, "new"))]).records == 0

    def test_several_files_of_one_landing_know_each_other(self, lake: Lake, tmp_path: Path) -> None:
        create_from(lake, TABLE, file(tmp_path, (1, 0, "a")), BY_TIME)
        one = file(tmp_path, (2, 5, "a"), (3, 5, "a"))
        other = file(tmp_path, (3, 5, "a"), (4, 5, "a"), name="other.parquet")
        landed = land(lake, TABLE, [one, other, file(tmp_path, name="none.parquet")])
        assert (landed.files, landed.segments, landed.records, landed.known, landed.empty) == (3, 2, 3, 1, 1)
        assert places(lake) == [(0, 1, "a"), (5, 2, "a"), (6, 3, "a"), (7, 4, "a")]

    def test_each_topic_partition_has_its_own_numbers(self, lake: Lake, tmp_path: Path) -> None:
        choice = Choice(("id",), "ts", topic="source", partition="shard")
        rows_of = "id,ts,source,shard\n1,2026-11-01 09:00:00,{},{}\n"
        create_from(lake, TABLE, text(tmp_path / "a.csv", rows_of.format("web", 0)), choice)
        others = [("app", 3), ("web", 0), ("web", 1)]
        land(lake, TABLE, [text(tmp_path / f"{number}.csv", rows_of.format(*one)) for number, one in enumerate(others)])
        assert sorted((row["source"], row["shard"], row["offset"]) for row in rows(lake)) == [
            (*one, NINE) for one in others
        ]

    def test_records_of_a_key_that_would_change_places_are_refused(self, lake: Lake, tmp_path: Path) -> None:
        create_from(lake, TABLE, file(tmp_path, (1, 0, "a"), (2, 1, "a"), (3, 2, "a")), BY_TIME)
        before = lake.table(TABLE).metadata_location
        with pytest.raises(RefusedError, match="two records of one key have times so close, at 2026-11-01 09:00:00"):
            land(lake, TABLE, [file(tmp_path, (3, 0, "b"))])
        assert lake.table(TABLE).metadata_location == before
        land(lake, TABLE, [file(tmp_path, (4, 0, "b"))])
        assert places(lake)[-1] == (3, 4, "b")

    def test_a_record_stays_above_older_ones_of_its_key(self, lake: Lake, tmp_path: Path) -> None:
        pile = [(number, 0, "a") for number in range(1, 5)]
        create_from(lake, TABLE, file(tmp_path, *pile, (1, 1, "b"), (2, 1, "b"), (3, 1, "b")), BY_TIME)
        publish(lake, validated(lake, TABLE))
        assert places(lake) == [(3, 4, "a"), (4, 1, "b"), (5, 2, "b"), (6, 3, "b")]
        land(lake, TABLE, [file(tmp_path, (3, 2, "c"), (5, 2, "a"))])
        assert places(lake) == [(2, 5, "a"), (3, 4, "a"), (4, 1, "b"), (5, 2, "b"), (6, 3, "b"), (7, 3, "c")]

    def test_c9_a_record_stays_above_removed_tombstones_of_its_key(self, lake: Lake, tmp_path: Path) -> None:
        pile = [(1, 0, "a"), (9, 0, "a"), (2, 0, "a"), (2, 1, "deleted"), (1, 1, "deleted")]
        create_from(lake, TABLE, file(tmp_path, *pile), replace(BY_TIME, tombstone="status = 'deleted'"))
        clean(lake, NOW)
        clean(lake, NOW + 10 * 86_400_000)
        assert places(lake) == [(1, 9, "a"), (4, 1, "deleted")]
        land(lake, TABLE, [file(tmp_path, (2, 2, "back"))])
        land(lake, TABLE, [file(tmp_path, *pile[:3])])
        clean(lake, NOW + 11 * 86_400_000)
        assert {(one, status) for _, one, status in places(lake)} == {(1, "deleted"), (2, "back"), (9, "a")}

    def test_what_firn_fills_is_left_out_of_a_copy_of_a_data_file(self, lake: Lake, tmp_path: Path) -> None:
        create_from(lake, TABLE, file(tmp_path, (1, 0, "a"), (2, 0, "a")), BY_TIME)
        (path,) = lakes.paths(lake.table(TABLE))
        copied = pq.read_table(on_disk(path), partitioning=None)
        changed = copied.set_column(0, "id", pa.array([1, 3])).set_column(3, "offset", pa.array([7, 7]))
        pq.write_table(changed, tmp_path / "copy.parquet")
        assert land(lake, TABLE, [tmp_path / "copy.parquet"]).records == 1
        assert places(lake) == [(0, 1, "a"), (1, 2, "a"), (2, 3, "a")]

    def test_text_stays_text(self, lake: Lake, tmp_path: Path) -> None:
        create_from(lake, TABLE, text(tmp_path / "a.csv", "id,ts,at\nx,2026-11-01,x\n"), BY_TIME)
        land(lake, TABLE, [text(tmp_path / "b.csv", "id,ts,at\n12,2026-11-02,2026-11-02\n")])
        land(lake, TABLE, [text(tmp_path / "c.jsonl", '{"id": "12", "ts": "2026-11-03", "at": "2026-11-03"}\n')])
        assert [(row["id"], row["at"]) for row in rows(lake)] == [
            ("x", "x"),
            ("12", "2026-11-02"),
            ("12", "2026-11-03"),
        ]

    def test_a_release_and_another_adoption_keep_the_order(self, lake: Lake, tmp_path: Path) -> None:
        create_from(lake, TABLE, file(tmp_path, (1, 0, "a")), BY_TIME)
        release(lake, TABLE)
        adopt(lake, TABLE, Choice(("id",), "offset"))
        land(lake, TABLE, [file(tmp_path, (1, 9, "b"))])
        assert places(lake) == [(0, 1, "a"), (9, 1, "b")]

    def test_records_of_other_writers_without_a_time_are_no_obstacle(self, lake: Lake, tmp_path: Path) -> None:
        create_from(lake, TABLE, file(tmp_path, (1, 5, "a")), BY_TIME)
        append(lake, TABLE, {"id": 1, "offset": NINE + 9, "status": "b"}, {"id": 1, "offset": NINE + 7, "ts": START})
        land(lake, TABLE, [file(tmp_path, (1, 20, "c"))])
        assert [place for place, *_ in places(lake)] == [5, 7, 9, 20]


class TestIntegers:
    """Offsets that the file knows."""

    def test_an_adopted_table_takes_files(self, lake: Lake, cdc: str, tmp_path: Path) -> None:
        append(lake, cdc, change(1), change(2, 2))
        adopt(lake, cdc, BY_ID)
        path = text(tmp_path / "a.jsonl", '{"id": 1, "op": "u", "lsn": 2, "x": 1}\n')
        with pytest.raises(RefusedError, match=r"has column x, which table shop\.customers lacks; allowed: id, region"):
            land(lake, cdc, [path])
        text(path, '{"id": 1, "op": "u", "lsn": 2}\n')
        with pytest.raises(RefusedError, match="holds a different record at offset 2 of customers-0"):
            land(lake, cdc, [path])
        text(path, '{"id": 2, "op": "u", "lsn": 2}\n{"id": 1, "op": "d", "lsn": 3}\n')
        landed = land(lake, cdc, [path])
        assert (landed.records, landed.known) == (1, 1)
        publish(lake, validated(lake, cdc))
        found = lake.table(cdc).scan().to_arrow().to_pylist()
        assert sorted((row["lsn"], row["op"]) for row in found) == [(2, "u"), (3, "d")]

    def test_topics_and_partitions(self, lake: Lake, events: str, tmp_path: Path) -> None:
        adopt(lake, events, BY_ENTITY)
        append(lake, events, event(5), event(5, shard=1))
        lines = [event(5), event(6), event(5, "app", 2)]
        pq.write_table(pa.Table.from_pylist(lines), tmp_path / "a.parquet")
        landed = land(lake, events, [tmp_path / "a.parquet"])
        assert (landed.segments, landed.records, landed.known) == (2, 2, 1)

    def test_a_file_of_no_topic_partition_is_named(self, lake: Lake, events: str, tmp_path: Path) -> None:
        append(lake, events, event(5), event(5, shard=1))
        adopt(lake, events, BY_ENTITY)
        pq.write_table(pa.Table.from_pylist([event(5)]), tmp_path / "a.parquet")
        with pytest.raises(RefusedError, match=r"nothing can land in web-0 beside segment .*; allowed: a file part"):
            land(lake, events, [tmp_path / "a.parquet"])

    def test_hidden_records_are_not_there(self, lake: Lake, cdc: str, tmp_path: Path) -> None:
        append(lake, cdc, change(1), change(2, 2))
        adopt(lake, cdc, BY_ID)
        lake.table(cdc).delete("lsn = 2")
        assert land(lake, cdc, [text(tmp_path / "a.jsonl", '{"id": 2, "op": "u", "lsn": 2}\n')]).records == 1


WRONG = {
    "x,ts\n1,2026-11-02\n": "has column x, which table shop.orders lacks; allowed: id, ts, status",
    "ts\n2026-11-02\n": "has no column id, which is given as the key; found: ts",
    "id,ts\n1,3\n": "column ts is int64, and the table's column timestamp",
    "id,ts\nx,2026-11-02\n": "column id is string, and the table's column int64",
    "id,ts\n1,\n": "column ts can't be the order|column ts, the order, is NULL in 1 of 1 records",
    "id,ts\n1,1969-11-02\n": "holds 1969-11-02.*; allowed: times from 1970 on",
}


@pytest.mark.parametrize("content", WRONG)
def test_c26_a_file_that_does_not_fit_is_refused(lake: Lake, tmp_path: Path, content: str) -> None:
    create_from(lake, TABLE, file(tmp_path, (1, 0, "a")), BY_TIME)
    before = lake.table(TABLE).metadata_location
    with pytest.raises(RefusedError, match=WRONG[content]):
        land(lake, TABLE, [file(tmp_path, (2, 1, "a")), text(tmp_path / "wrong.csv", content)])
    assert lake.table(TABLE).metadata_location == before


def test_c26_a_table_that_is_partitioned_otherwise_is_refused(lake: Lake, tmp_path: Path) -> None:
    create_from(lake, TABLE, file(tmp_path, (1, 0, "a")), BY_TIME)
    with lake.table(TABLE).update_spec() as update:
        update.add_identity("status")
    with pytest.raises(RefusedError, match="is partitioned by status as well"):
        land(lake, TABLE, [file(tmp_path, (1, 2, "a"))])


class TestRaces:
    """Other writers that append meanwhile."""

    @pytest.mark.parametrize("number", [1, 2, 3])
    def test_no_two_records_get_one_offset(self, lake: Lake, tmp_path: Path, number: int) -> None:
        create_from(lake, TABLE, file(tmp_path, (1, 0, "a")), BY_TIME)
        mine = file(tmp_path, (2, 5, "mine"), (3, 5, "mine"))
        other = file(tmp_path, (4, 5, "other"), (2, 5, "mine"), name="other.parquet")
        race = Nth(number, lambda: land(lake, TABLE, [other]))
        land(watched(lake, race), TABLE, [mine])
        assert race.acted
        assert len({row["offset"] for row in rows(lake)}) == 4
        assert sorted((row["id"], row["status"]) for row in rows(lake)) == [
            *((1, "a"), (2, "mine"), (3, "mine"), (4, "other")),
        ]

    def test_a_cleaning_does_not_take_records_away(self, lake: Lake, tmp_path: Path) -> None:
        create_from(lake, TABLE, file(tmp_path, (1, 0, "a"), (1, 1, "b"), (2, 5, "a")), BY_TIME)
        stage = validated(lake, TABLE)
        race = Nth(1, lambda: publish(lake, stage), only="before commit")
        assert land(watched(lake, race), TABLE, [file(tmp_path, (3, 5, "a"), (2, 5, "a"))]).records == 1
        assert race.acted
        assert places(lake) == [(1, 1, "b"), (5, 2, "a"), (6, 3, "a")]

    def test_it_gives_up_and_leaves_nothing(self, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        create_from(lake, TABLE, file(tmp_path, (1, 0, "a")), BY_TIME)
        monkeypatch.setattr(land_own, "TRIES", 2)
        mine = file(tmp_path, (2, 5, "mine"))
        busy: dict[str, int] = defaultdict(int)

        def other(what: str) -> None:
            if what == "before commit" or busy["now"]:
                return
            busy["now"] = 1
            busy["all"] += 1
            land(lake, TABLE, [file(tmp_path, (9 + busy["all"], 5, "other"), name="other.parquet")])
            busy["now"] = 0

        with pytest.raises(UnavailableError, match="at the same offsets 2 times in a row; nothing was landed"):
            land(watched(lake, other), TABLE, [mine])
        assert "mine" not in {row["status"] for row in rows(lake)}


ROWS = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 6).map(lambda one: one * 40), st.sampled_from("abc")), max_size=8
)


@given(st.lists(st.lists(ROWS, min_size=1, max_size=2), min_size=1, max_size=3))
@bounded(25)
def test_every_record_lands_once_in_the_order_of_times(
    tmp_path_factory: pytest.TempPathFactory, landings: list[list[Any]]
) -> None:
    """Fewer records have one time than there are microseconds to the next one, so offsets are in the order of times."""
    folder = tmp_path_factory.mktemp("own")
    lake = Lake.embedded(folder)
    create_from(lake, TABLE, file(folder, (0, 0, "a")), BY_TIME)
    landed = {(0, 0, "a")}
    for files in landings:
        paths = [file(folder, *dict.fromkeys(one), name=f"{number}.parquet") for number, one in enumerate(files)]
        land(lake, TABLE, paths)
        landed |= {row for one in files for row in one}
    found = [(row["id"], int((row["ts"] - START) / timedelta(microseconds=1)), row["status"]) for row in rows(lake)]
    assert sorted(found) == sorted(landed)
    assert len({row["offset"] for row in rows(lake)}) == len(found)
    assert all(one[1] <= other[1] for one, other in pairwise(found))
