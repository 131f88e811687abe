"""One description of catalog and warehouse for PyIceberg and Spark, and one line when it does not work."""

import sqlite3
from pathlib import Path

import pytest

from firnlake.errors import FirnError, RefusedError, UnavailableError
from firnlake.iceberg.catalog import CATALOG_FILE, Lake
from firnlake.table import records
from infra.foreign.files import files_under, on_disk
from tests.support import lakes


class TestConfiguration:
    """PyIceberg's own configuration decides; with nothing configured the lake is embedded."""

    def test_nothing_configured_is_a_folder_here(self, tmp_path: Path) -> None:
        lake = Lake.load()
        assert lake.home == tmp_path / ".firn"
        assert lake.properties["uri"].startswith(f"sqlite:///{tmp_path}/.firn/catalog.db")
        records.create(lake, "a.b", {})
        assert (tmp_path / ".firn" / "warehouse" / "a" / "b" / "metadata").is_dir()

    def test_firn_home_moves_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FIRN_HOME", str(tmp_path / "elsewhere"))
        lake = Lake.load()
        assert lake.home == tmp_path / "elsewhere"
        assert lake.plans_folder == tmp_path / "elsewhere" / "plans"
        assert lake.reports_folder == tmp_path / "elsewhere" / "reports"

    def test_reading_creates_no_tables(self, tmp_path: Path) -> None:
        assert Lake.embedded(tmp_path / "new").all_tables() == []

    def test_two_processes_see_the_same_tables(self, lake: Lake, table: str) -> None:
        assert Lake.embedded(lake.home).tables("lake") == [table]

    @pytest.mark.parametrize("name", ["with a space", "größe", "100%"])
    def test_a_home_may_have_any_other_name(self, tmp_path: Path, name: str) -> None:
        lake = Lake.embedded(tmp_path / name)
        records.create(lake, lakes.TABLE, {})
        lakes.append(lake, [lakes.row(0)])
        assert lakes.offsets(lake) == [0]
        assert files_under(tmp_path / name / "warehouse")

    @pytest.mark.parametrize("name", ["what?", "c#"])
    def test_a_home_that_no_uri_can_name_is_refused(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(RefusedError, match="can't hold a lake; allowed: a path without"):
            Lake.embedded(tmp_path / name)

    def test_the_environment_configures_a_catalog(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TYPE", "sql")
        monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", f"sqlite:///{tmp_path}/prod.db")
        monkeypatch.setenv("PYICEBERG_CATALOG__PROD__WAREHOUSE", f"file://{tmp_path}/house")
        lake = Lake.load()
        assert (lake.name, lake.properties["warehouse"]) == ("prod", f"file://{tmp_path}/house")
        records.create(lake, "a.b", {})
        assert (tmp_path / "prod.db").exists()
        assert (tmp_path / "house").is_dir()

    def test_the_yaml_file_configures_a_catalog(self, tmp_path: Path) -> None:
        (tmp_path / ".pyiceberg.yaml").write_text(
            f"catalog:\n  y:\n    type: sql\n    uri: sqlite:///{tmp_path}/y.db\n"
        )
        assert Lake.load().name == "y"

    def test_what_is_nested_is_left_to_pyiceberg(self, tmp_path: Path) -> None:
        (tmp_path / ".pyiceberg.yaml").write_text(
            "catalog:\n  r:\n    uri: http://c\n    auth:\n      type: basic\n      basic:\n        username: me\n"
        )
        assert Lake.load().properties == {"uri": "http://c"}

    def test_c26_several_catalogs_without_a_default_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("B", "A"):
            monkeypatch.setenv(f"PYICEBERG_CATALOG__{name}__URI", "sqlite://")
        with pytest.raises(RefusedError, match=r"several catalogs are configured \(a, b\).*PYICEBERG_DEFAULT_CATALOG"):
            Lake.load()
        monkeypatch.setenv("PYICEBERG_DEFAULT_CATALOG", "b")
        assert Lake.load().name == "b"


SECRET = "s3cr3t"  # noqa: S105


@pytest.mark.parametrize(
    ("properties", "error", "text"),
    [
        (
            {"type": "sql", "uri": "sqlite:////nonexistent/c.db"},
            UnavailableError,
            "(sqlite:////nonexistent/c.db) can't be",
        ),
        (
            {"type": "rest", "uri": f"http://me:{SECRET}@127.0.0.1:1/x"},
            UnavailableError,
            "(127.0.0.1:1/x) can't be reached: HTTPConnectionPool",
        ),
        (
            {"type": "rest", "uri": "http://catalog.invalid"},
            UnavailableError,
            "(http://catalog.invalid) can't be reached",
        ),
        (
            {"type": "sql", "uri": f"nonsense://me:{SECRET}@host/x"},
            RefusedError,
            "(host/x) can't be used as configured",
        ),
        (
            {"uri": f"nonsense://me:{SECRET}@host/x"},
            RefusedError,
            "Could not infer the catalog type from the uri: nonsense://me:***@host/x",
        ),
        ({"type": "sql", "uri": "nonsense"}, RefusedError, "(nonsense) can't be used as configured"),
        ({"type": "crystal", "uri": "x"}, RefusedError, "'crystal' is not a valid CatalogType"),
        ({"type": "sql"}, RefusedError, "(no uri) can't be used as configured"),
    ],
)
def test_c26_a_catalog_that_does_not_answer_is_named_without_credentials(
    tmp_path: Path, properties: dict[str, str], error: type[FirnError], text: str
) -> None:
    lake = Lake("prod", properties, tmp_path)
    with pytest.raises(error) as caught:
        lake.table("a.b")
    message = str(caught.value)
    assert message.startswith("catalog prod (")
    assert text in message
    assert SECRET not in message
    assert "\n" not in message


def test_c26_a_catalog_file_that_is_none_is_named(lake: Lake) -> None:
    lake.home.mkdir()
    (lake.home / "catalog.db").write_bytes(b"something else " * 100)
    with pytest.raises(UnavailableError, match="can't be reached: file is not a database"):
        lake.table("a.b")


def test_a_busy_catalog_is_waited_for(lake: Lake, table: str) -> None:
    other = sqlite3.connect(lake.home / "catalog.db", check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")

    def release() -> None:
        other.rollback()
        other.close()

    lakes.together(lambda: lakes.append(Lake.embedded(lake.home), [lakes.row(0)]), release)
    assert lakes.offsets(lake, table) == [0]


class TestTables:
    """Finding and making tables."""

    @pytest.mark.parametrize("name", ["records", "", ".records", "lake."])
    def test_c26_a_misnamed_table_is_refused(self, lake: Lake, name: str) -> None:
        with pytest.raises(RefusedError, match=r"is not a table name; allowed: namespace\.name"):
            lake.table(name)
        with pytest.raises(RefusedError, match=r"is not a table name; allowed: namespace\.name"):
            records.create(lake, name, {})

    def test_c26_an_unknown_table_is_refused_and_stages_are_not_offered(self, lake: Lake, table: str) -> None:
        lakes.append(lake, [lakes.row(0)])
        lakes.opened(lake, lakes.only_plan(lake))
        with pytest.raises(RefusedError) as caught:
            lake.table("lake.recrods")
        where = f"catalog lake ({lake.home / CATALOG_FILE})"
        told = f"table lake.recrods does not exist in {where}; found: {table}; FIRN_HOME chooses another lake"
        assert str(caught.value) == told
        with pytest.raises(RefusedError, match="found: no table in namespace nowhere"):
            lake.table("nowhere.x")

    def test_c26_a_table_whose_metadata_is_gone_is_named(self, lake: Lake, table: str) -> None:
        on_disk(lake.table(table).metadata_location).unlink()
        with pytest.raises(RefusedError, match=r"table lake\.records: its metadata file is gone"):
            lake.table(table)

    def test_c26_an_existing_table_is_not_made_again(self, lake: Lake, table: str) -> None:
        before = lake.table(table).metadata_location
        with pytest.raises(RefusedError, match=r"lake\.records already exists in catalog lake; allowed: a new name"):
            records.create(lake, table, {})
        assert lake.table(table).metadata_location == before

    def test_a_created_table_is_one_of_records_with_exact_metrics(self, lake: Lake, table: str) -> None:
        created = lake.table(table)
        records.check(created, table)
        assert created.format_version == 2
        assert created.properties["write.metadata.metrics.column.offset"] == "full"
        assert [field.name for field in created.spec().fields] == ["topic", "partition", "level"]

    def test_given_properties_win(self, lake: Lake) -> None:
        created = records.create(
            lake, lakes.TABLE, {"write.parquet.compression-codec": "snappy", "firn.null.keys": "fail"}
        )
        assert created.properties["write.parquet.compression-codec"] == "snappy"
        assert created.properties["firn.null.keys"] == "fail"

    def test_an_unknown_namespace_has_no_tables(self, lake: Lake) -> None:
        assert lake.tables("nowhere") == []

    def test_namespaces_may_be_nested(self, lake: Lake) -> None:
        records.create(lake, "a.b.c", {})
        assert lake.tables("a.b") == ["a.b.c"]
