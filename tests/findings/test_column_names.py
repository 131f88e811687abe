"""Names of columns are text: no step reads a path in them, and none mixes columns of its own with the table's."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, IcebergType, LongType, NestedField, StringType, StructType

from firnlake.iceberg.catalog import Lake
from infra.foreign.row_deletes import add, equality_file
from tests.support import row_deletes
from tests.support.in_process import Firn, command_on
from tests.support.lakes import NOW

TABLE = "shop.named"
PATHS = ("user.id", ".id", "a.b.c", "a[0]", 'a"b', "a b", "`b`", "{0}", "%s", "is_transactional", "level", "key")
INTERNAL = (
    "firn plan", "firn shown before", "firn_plan", "firn_level", "firn_0", "told_0", "c0", "plan", "offset", "key",
    "place", "job", "mark", "tombstone", "fingerprint", "_file", "file_path", "pos", "side", "number", "own", "value",
)  # fmt: skip


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake of the test's own."""
    return Lake.embedded(tmp_path / "home")


@pytest.fixture
def firn(lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Firn:
    """Run ``firn`` in this process, on that lake."""
    return command_on(lake, monkeypatch, capsys)


def create(lake: Lake, columns: dict[str, IcebergType]) -> None:
    fields = (NestedField(number, name, kind) for number, (name, kind) in enumerate(columns.items(), start=1))
    lake.create_namespace("shop")
    lake.catalog.create_table(TABLE, Schema(*fields), properties={"format-version": "2"})


def adopt(firn: Firn, key: str, offset: str = "lsn", *options: str) -> None:
    ran = firn("adopt", TABLE, "--key", key, "--offset", offset, *options)
    assert ran.code == 0, ran.err


def append(lake: Lake, *rows: dict[str, Any]) -> None:
    """Append as Java and PyIceberg write: names that Avro does not allow are others in the file."""
    table = lake.table(TABLE)
    table.append(pa.Table.from_pylist(list(rows), schema=table.schema().as_arrow()))


def append_as_named(lake: Lake, *rows: dict[str, Any]) -> None:
    """Append a file whose columns are named as those of the table."""
    table = lake.table(TABLE)
    values = [None] * len(table.spec().fields)
    add(lake, TABLE, [], [row_deletes.data_file(table, rows, table.spec().spec_id, values)])


def clean(firn: Firn, lane: str = "full") -> None:
    ran = firn("run", TABLE, "--lane", lane, "--force", "--engine", "local", "--now", NOW)
    assert ran.code == 0, ran.err


def kept(firn: Firn, key: str) -> dict[int, str]:
    """The rule that keeps each record of ``key``, by offset."""
    ran = firn("explain", TABLE, "--key", key, "--json", "--now", NOW)
    assert ran.code == 0, ran.err
    return {one["record"]["offset"]: one["reason"]["rule"] for one in ran.json["kept"]}


@pytest.mark.parametrize("name", PATHS)
def test_e3_a_key_is_found_in_a_column_of_any_name(lake: Lake, firn: Firn, name: str) -> None:
    create(lake, {name: LongType(), "lsn": LongType()})
    adopt(firn, name)
    rows = [{name: key, "lsn": lsn} for lsn, key in enumerate([1, 2, 1, None])]
    append_as_named(lake, *rows[:2])
    append(lake, *rows[2:])
    assert (kept(firn, "1"), kept(firn, "2")) == ({0: "C2", 2: "C3"}, {1: "C3"})
    assert kept(firn, "null:").keys() == {3}


@pytest.mark.parametrize("name", ["user.id", ".lsn"])
def test_e3_an_offset_and_a_tombstone_are_found_in_columns_of_such_names(lake: Lake, firn: Firn, name: str) -> None:
    create(lake, {"id": LongType(), name: LongType(), "op.x": StringType()})
    adopt(firn, "id", name, "--tombstone", "op.x = 'd'")
    append_as_named(lake, *({"id": 1, name: offset, "op.x": op} for offset, op in enumerate("ud")))
    (_, tombstone) = firn("explain", TABLE, "--key", "1", "--json").json["kept"]
    assert tombstone["record"]["tombstone"]
    for job in "ab":
        append_as_named(lake, {"id": None, name: 2, "op.x": job}, {"id": 1, name: 5, "op.x": "u"})
        clean(firn)
    # Two jobs moved records of one offset, so the records are read to be counted.
    assert [one["records"] for one in firn("quarantine", TABLE, "--json").json] == [1, 1]


@pytest.mark.parametrize("by_value", [False, True])
def test_e3_what_row_level_deletes_hide_is_not_explained(lake: Lake, firn: Firn, by_value: bool) -> None:
    create(lake, {"user.id": LongType(), "lsn": LongType()})
    adopt(firn, "user.id", "lsn", "--keep-partitioning")
    append_as_named(lake, *({"user.id": key, "lsn": lsn} for lsn, key in enumerate([1, 1, 2])))
    if by_value:
        add(lake, TABLE, [equality_file(lake.table(TABLE), ["lsn", "user.id"], [(0, 1)], 0, ())])
    else:
        row_deletes.delete_at(lake, TABLE, row_deletes.places(lake, TABLE, {0}, "lsn"))
    assert kept(firn, "1") == {1: "C3"}


def test_e3_a_column_beside_a_struct_that_reads_alike(lake: Lake, firn: Firn) -> None:
    create(lake, {"user.id": LongType(), "lsn": LongType(), "user": StructType(NestedField(9, "name", LongType()))})
    adopt(firn, "user.id")
    append_as_named(lake, *({"user.id": key, "lsn": key, "user": {"name": 3 - key}} for key in (1, 2)))
    assert (list(kept(firn, "1")), list(kept(firn, "2"))) == ([1], [2])


def test_e4_a_table_may_have_columns_of_any_name(lake: Lake, firn: Firn) -> None:
    """They stay as they are, and the judge says so."""
    names = tuple(dict.fromkeys((*PATHS, *INTERNAL)))
    create(lake, {"id": LongType(), "lsn": LongType()} | dict.fromkeys(names, StringType()))
    adopt(firn, "id")
    rows = [{"id": key, "lsn": lsn} | {name: f"{name}{lsn}" for name in names} for lsn, key in enumerate([1, 2, 1])]
    append(lake, *rows)
    clean(firn)
    held = lake.table(TABLE).scan().to_arrow().select(list(rows[0])).to_pylist()
    assert sorted(held, key=lambda row: row["lsn"]) == rows[1:]
    assert firn("verify", TABLE).code == 0


@pytest.mark.parametrize("role", ["key", "offset", "tombstone"])
@pytest.mark.parametrize("name", ["firn plan", "FIRN SHOWN BEFORE", "firn_plan", "firn_0", "told_0", "user.id"])
def test_e4_a_column_of_any_name_may_have_any_role(lake: Lake, firn: Firn, name: str, role: str) -> None:
    roles = {"key": "id", "offset": "lsn", "tombstone": "dead"} | {role: name}
    create(lake, {one: LongType() for one in roles.values()})
    dead = roles["tombstone"]
    condition = f'"{dead}"' if " " in dead else dead  # as in PyIceberg's row filters
    adopt(firn, roles["key"], roles["offset"], "--tombstone", f"{condition} > 0")
    append(lake, *(dict(zip(roles.values(), row, strict=True)) for row in [(1, 0, 0), (2, 1, 0), (1, 2, 1)]))
    clean(firn)
    assert (kept(firn, "1"), kept(firn, "2")) == ({2: "C4"}, {1: "C3"})
    assert firn("verify", TABLE).code == 0


def test_e4_names_that_differ_only_in_case(lake: Lake, firn: Firn) -> None:
    create(lake, {"Key": LongType(), "key": StringType(), "KEY": StringType(), "lsn": LongType()})
    adopt(firn, "Key", "lsn", "--tombstone", "Key > 8 OR key = 'd' OR KEY = 'd'")
    append(lake, *({"Key": 1, "key": one, "KEY": one.upper(), "lsn": lsn} for lsn, one in enumerate("abd")))
    clean(firn)
    assert kept(firn, "1") == {2: "C4"}


def test_e4_lane_convert_flags_no_column_of_the_table(lake: Lake, firn: Firn) -> None:
    names = ("firn shown before", "firn shown after", "firn plan")
    create(lake, dict.fromkeys((*names, "lsn"), LongType()))
    adopt(firn, names[0], "lsn", "--keep-partitioning")
    append(lake, *(dict.fromkeys((*names, "lsn"), key) for key in range(8)))
    add(lake, TABLE, [equality_file(lake.table(TABLE), names, [(3, 3, 3)], 0, ())])
    clean(firn, "convert")
    assert row_deletes.equality_deletes(lake.table(TABLE)) == set()
    assert [row["lsn"] for row in row_deletes.visible_rows(lake.table(TABLE))] == [0, 1, 2, 4, 5, 6, 7]


def test_e4_a_quarantined_record_may_have_a_job_of_its_own(lake: Lake, firn: Firn) -> None:
    create(lake, {"id": LongType(), "job": StringType(), "lsn": LongType()})
    adopt(firn, "id")
    for job in "ab":
        append(lake, {"id": None, "lsn": 0, "job": job}, {"id": 1, "lsn": 4, "job": "x"})
        clean(firn)
    found = firn("quarantine", TABLE, "--json").json
    assert [(one["records"], one["base_offset"]) for one in found] == [(1, 0), (1, 0)]
    assert len({one["job"] for one in found}) == 2


def test_e4_a_key_in_a_column_of_any_name_is_erased(lake: Lake, firn: Firn) -> None:
    create(lake, {"firn plan": LongType(), "user.id": StringType(), "lsn": LongType()})
    adopt(firn, "firn plan,user.id")
    append(lake, *({"firn plan": key, "user.id": "x", "lsn": lsn} for lsn, key in enumerate([1, 2, 1, 3])))
    assert firn("erase", TABLE, "--key", "1,x").code == 0
    clean(firn, "erase")
    assert kept(firn, "1,x") == {}
    assert kept(firn, "2,x").keys() == {1}


def test_e4_flags_of_transactions_may_mean_anything_in_an_adopted_table(lake: Lake, firn: Firn) -> None:
    create(lake, {"id": LongType(), "is_transactional": LongType(), "is_control": BooleanType()})
    adopt(firn, "id", "is_transactional")
    append(lake, *({"id": 1, "is_transactional": offset, "is_control": True} for offset in (1, 2)))
    assert kept(firn, "1") == {1: "C2", 2: "C3"}
    clean(firn)
    assert kept(firn, "1") == {2: "C3"}
