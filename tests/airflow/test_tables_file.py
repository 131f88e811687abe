"""The settings of tables in Airflow and the tables of patterns; none of them starts Airflow."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from firnlake.airflow.configuration import Configured, known_tables, look, read_tables
from firnlake.iceberg.catalog import Lake
from firnlake.table import records


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.embedded(tmp_path)


def read(folder: Path, text: str, known: Sequence[str] = ()) -> Configured:
    path = folder / "firn.toml"
    path.write_text(text)
    return read_tables(path, known)


def test_defaults_hold_for_every_table_that_does_not_say_otherwise(tmp_path: Path) -> None:
    text = '[defaults]\nretries = 1\npool = "a"\n[tables."x.y"]\n[tables."x.z"]\npool = "b"\n'
    one, other = read(tmp_path, text).tables
    assert (one.name, one.dag_id, one.namespace, one.pool, one.retries) == ("x.y", "firn__x__y", "x", "a", 1)
    assert (other.name, other.pool, other.retries) == ("x.z", "b", 1)


def test_a_pattern_stands_for_the_tables_that_match_it(tmp_path: Path) -> None:
    text = (
        '[defaults]\nretries = 1\n[tables."x.b"]\npool = "own"\n'
        '[tables."x.*"]\npool = "x"\nowner = "me"\n[tables."*.c"]\npool = "c"\n'
    )
    configured = read(tmp_path, text, ["x.a", "x.b", "x.c", "y.a"])
    assert configured.refused == []
    found = {one.name: (one.pool, one.owner, one.retries) for one in configured.tables}
    assert found == {"x.a": ("x", "me", 1), "x.b": ("own", "me", 1), "x.c": ("c", "me", 1)}
    assert [one.name for one in configured.patterns] == ["x.*", "*.c"]


@pytest.mark.parametrize(
    ("text", "known", "said"),
    [
        ('"x.y" = { poll = "a" }', (), "table x.y: poll is not a setting; allowed: schedule, watched,"),
        ('"x.y" = { retries = -1 }', (), "table x.y: retries is -1; allowed: greater than or equal to 0"),
        ('"x.y" = { engine = "flink" }', (), "table x.y: engine is 'flink'; allowed: 'spark', 'local' or 'auto'"),
        ('"x.y" = { watched = "maybe" }', (), "table x.y: watched is 'maybe'; allowed: a valid boolean"),
        ('"x.y" = { spark = { "spark.master" = "yarn" } }', (), "other than spark.master"),
        ('"x.y" = { name = "x" }', (), "table x.y: "),
        ('"x.y" = 3', (), "table x.y: "),
        ('"x.y" = { notify = [{ to = "me" }] }', (), "table x.y: notify.0.class is"),
        ('"x.*" = {}', ["y.a"], "pattern x.* matches no table that the DAG firn_maintain has found"),
        ('"x.*" = { poll = "p" }\n"x.a" = {}', ["x.a", "x.b"], "table x.*: poll is not a setting"),
    ],
)
def test_c26_what_is_wrong_is_named_once_and_holds_up_no_other_table(
    tmp_path: Path, text: str, known: Sequence[str], said: str
) -> None:
    configured = read(tmp_path, f'[tables]\n{text}\n"y.z" = {{}}\n', known)
    (refused,) = configured.refused
    assert said in refused
    assert [one.name for one in configured.tables] == ["y.z"]


def test_c26_another_section_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="table is not a section; allowed: defaults, tables"):
        read(tmp_path, '[table."x.y"]')


def test_it_finds_the_tables_of_records_alone(lake: Lake) -> None:
    assert known_tables(lake.home) == []
    records.create(lake, "x.b", {})
    records.create(lake, "x.inner.a", {})
    lake.catalog.create_table("x.other", pa.schema([("id", pa.int64())]))
    assert look(lake) == known_tables(lake.home) == ["x.b", "x.inner.a"]
    with lake.table("x.b").update_schema() as change:
        change.rename_column("timestampType", "kind")
    assert look(lake) == ["x.b", "x.inner.a"], "a table that can't be maintained keeps its DAG, which says so"
    lake.catalog.drop_table("x.b")
    assert look(lake) == known_tables(lake.home) == ["x.inner.a"]


def test_a_table_that_can_not_be_read_keeps_its_place(lake: Lake) -> None:
    records.create(lake, "x.a", {})
    look(lake)
    Path(lake.table("x.a").metadata_location.removeprefix("file://")).write_text("{")
    records.create(lake, "x.b", {})
    assert look(lake) == known_tables(lake.home) == ["x.a", "x.b"]


@pytest.mark.parametrize("text", ["", "{}", "[1]", "\udcff"])
def test_a_damaged_file_is_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "tables.json").write_bytes(text.encode(errors="surrogateescape"))
    assert known_tables(tmp_path) == []
