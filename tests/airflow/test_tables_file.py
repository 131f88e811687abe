"""The settings of tables in Airflow, the tables of patterns, and the lease of a run; none of them starts Airflow."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

from firnlake.airflow.configuration import read_tables
from firnlake.airflow.discovery import Discovery, known_tables, look
from firnlake.iceberg.catalog import Lake
from firnlake.job import lease
from firnlake.table import records


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.embedded(tmp_path)


def test_defaults_hold_for_every_table_that_does_not_say_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "firn.toml"
    path.write_text('[defaults]\nretries = 1\npool = "a"\n[tables."x.y"]\n[tables."x.z"]\npool = "b"\n')
    configured = read_tables(path)
    assert configured.refused == []
    one, other = configured.tables
    assert (one.name, one.dag_id, one.namespace, one.pool, one.retries) == ("x.y", "firn__x__y", "x", "a", 1)
    assert (other.name, other.pool, other.retries) == ("x.z", "b", 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[tables."x.y"]\npoll = "a"', "table x.y: poll is not a setting; allowed: schedule, watched,"),
        ('[tables."x.y"]\nretries = -1', "table x.y: retries is -1; allowed: greater than or equal to 0"),
        ('[tables."x.y"]\nengine = "flink"', "table x.y: engine is 'flink'; allowed: 'spark', 'local' or 'auto'"),
        ('[tables."x.y"]\nwatched = "maybe"', "table x.y: watched is 'maybe'; allowed: a valid boolean"),
        ('[tables."x.y".spark]\n"spark.master" = "yarn"', "other than spark.master"),
        ('[tables."x.y"]\nname = "x"', "table x.y: "),
        ('[tables]\n"x.y" = 3', "table x.y: "),
        ('[tables."x.y"]\nnotify = [{ to = "me" }]', "table x.y: notify.0.class is"),
    ],
)
def test_c26_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "firn.toml"
    path.write_text(f'{text}\n[tables."x.z"]\n')
    configured = read_tables(path)
    (other,), (refused,) = configured.tables, configured.refused
    assert said in refused
    assert other.name == "x.z"


def test_c26_another_section_is_named(tmp_path: Path) -> None:
    path = tmp_path / "firn.toml"
    path.write_text('[table."x.y"]')
    with pytest.raises(ValueError, match="table is not a section; allowed: defaults, tables"):
        read_tables(path)


def test_a_pattern_stands_for_the_tables_that_match_it(tmp_path: Path) -> None:
    path = tmp_path / "firn.toml"
    path.write_text(
        '[defaults]\nretries = 1\n[tables."x.b"]\npool = "own"\n'
        '[tables."x.*"]\npool = "x"\nowner = "me"\n[tables."*.c"]\npool = "c"\n'
    )
    configured = read_tables(path, ["x.a", "x.b", "x.c", "y.a"])
    assert configured.refused == []
    found = {one.name: (one.pool, one.owner, one.retries) for one in configured.tables}
    assert found == {"x.a": ("x", "me", 1), "x.b": ("own", "me", 1), "x.c": ("c", "me", 1)}
    assert [one.name for one in configured.patterns] == ["x.*", "*.c"]


@pytest.mark.parametrize(
    ("known", "said"),
    [(None, "has no tables yet: the DAG firn_maintain looks"), (["y.a"], "matches none of the 1 tables")],
)
def test_c26_a_pattern_without_tables_is_named(tmp_path: Path, known: list[str] | None, said: str) -> None:
    path = tmp_path / "firn.toml"
    path.write_text('[tables."x.*"]\n[tables."y.a"]\n')
    configured = read_tables(path, known)
    (refused,) = configured.refused
    assert f"pattern x.* {said}" in refused
    assert [one.name for one in configured.tables] == ["y.a"]


def test_c26_a_wrong_pattern_is_named_once_and_its_tables_do_not_run_without_it(tmp_path: Path) -> None:
    path = tmp_path / "firn.toml"
    path.write_text('[tables."x.*"]\npoll = "p"\n[tables."x.a"]\n[tables."y.*"]\n')
    configured = read_tables(path, ["x.a", "x.b", "y.a"])
    (refused,) = configured.refused
    assert "table x.*: poll is not a setting" in refused
    assert [one.name for one in configured.tables] == ["y.a"]


def test_it_finds_the_tables_of_records_alone(lake: Lake) -> None:
    assert known_tables(lake.home) is None
    records.create(lake, "x.b", {})
    records.create(lake, "x.inner.a", {})
    lake.catalog.create_table("x.other", pa.schema([("id", pa.int64())]))
    assert look(lake) == Discovery(["x.b", "x.inner.a"], [], [])
    assert known_tables(lake.home) == ["x.b", "x.inner.a"]
    lake.catalog.drop_table("x.b")
    assert look(lake) == Discovery([], ["x.b"], [])
    assert known_tables(lake.home) == ["x.inner.a"]


def test_a_table_that_can_not_be_read_keeps_its_place(lake: Lake) -> None:
    records.create(lake, "x.a", {})
    look(lake)
    Path(lake.table("x.a").metadata_location.removeprefix("file://")).write_text("{")
    records.create(lake, "x.b", {})
    assert look(lake) == Discovery(["x.b"], [], ["x.a"])
    assert known_tables(lake.home) == ["x.a", "x.b"]


@pytest.mark.parametrize("text", ["", "{}", "[1]", "\udcff"])
def test_a_damaged_file_is_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "tables.json").write_bytes(text.encode(errors="surrogateescape"))
    assert known_tables(tmp_path) is None


def test_one_run_has_a_table_until_it_gives_it_back_or_has_ended(tmp_path: Path) -> None:
    def take(run: str, table: str = "x.y", works: bool = True) -> str | None:
        return lease.take(tmp_path, table, run, lambda _: works)

    assert lease.holder(tmp_path, "x.y") is None
    assert [take("first"), take("first"), take("second"), take("second", "x.z")] == [None, None, "first", None]
    os.utime(tmp_path / "x.y.lease", (1_700_000_000, 1_700_000_000))
    assert lease.holder(tmp_path, "x.y") == lease.Holder("first", 1_700_000_000_000)
    assert take("second", works=False) is None
    lease.give_back(tmp_path, "x.y", "first")
    assert take("third") == "second"
    lease.give_back(tmp_path, "x.y", "second")
    assert take("third") is None
