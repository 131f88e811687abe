"""Names of columns are text: no step reads a path in them, or mixes columns of its own with the table's."""

import shlex
from collections.abc import Mapping

import pytest

from infra.foreign.row_deletes import add
from tests.support import row_deletes
from tests.support.scenario import Scenario

PATHS = ("user.id", ".id", "a.b.c", "a[0]", 'a"b', "a b", "`b`", "{0}", "%s", "is_transactional", "level", "key")
INTERNAL = (
    "firn plan", "firn shown before", "firn_plan", "firn_level", "firn_0", "told_0", "c0", "plan", "offset", "job",
    "place", "mark", "tombstone", "fingerprint", "_file", "file_path", "pos", "side", "number", "own", "value",
)  # fmt: skip


def row(values: Mapping[str, object]) -> str:
    return shlex.join(f"{name}={value}" for name, value in values.items())


def append_as_named(scenario: Scenario, *rows: Mapping[str, object]) -> None:
    """Append a file whose columns are named as those of the table; PyIceberg writes others where Avro allows none."""
    table = scenario.loaded()
    file = row_deletes.data_file(table, rows, table.spec().spec_id, [None] * len(table.spec().fields))
    add(scenario.opened.lake, scenario.name, [], [file])


@pytest.mark.parametrize("names", [PATHS, INTERNAL], ids=["paths", "internal"])
def test_columns_of_any_name_are_keys(scenario: Scenario, names: tuple[str, ...]) -> None:
    scenario.answer("table " + shlex.join([*(f"{name}=long" for name in names), "lsn=long"]))
    scenario.answer("adopt --offset lsn " + shlex.join(["--key", ",".join(names)]))
    rows = [dict.fromkeys(names, key) | {"lsn": lsn} for lsn, key in enumerate([1, 2, 1, 3])]
    append_as_named(scenario, *rows[:2])
    scenario.answer("rows " + " | ".join(map(row, rows[2:])))
    key = ",".join("1" for _ in names)
    said = scenario.answer(f"firn explain {{table}} --key {key}")
    assert [line.split(":")[0].strip() for line in said if line.startswith("  ")] == ["kept, C2", "kept, C3"]
    scenario.answer(f"ask {','.join('2' for _ in names)}")
    assert scenario.answer("erase!") == ["{topic}-0: 1 to 1 segments, 2 to 1 records; erased 1"]
    assert scenario.answer("full!") == ["{topic}-0: 2 to 1 segments, 3 to 2 records; superseded 1"]
    assert scenario.answer(f"select lsn {shlex.quote(names[0])}") == [f"lsn=2 {names[0]}=1", f"lsn=3 {names[0]}=3"]
    assert scenario.answer("verify") == ["full: kept"]


def test_columns_of_any_name_stay_as_they_are(scenario: Scenario) -> None:
    names = tuple(dict.fromkeys((*PATHS, *INTERNAL)))
    scenario.answer("table id=long lsn=long " + shlex.join(f"{name}=string" for name in names))
    scenario.answer("adopt --key id --offset lsn")
    rows = [{"lsn": lsn, "id": key} | dict.fromkeys(names, f"v{lsn}") for lsn, key in enumerate([1, 2, 1])]
    scenario.answer("rows " + " | ".join(map(row, rows)))
    scenario.answer("full!")
    assert scenario.answer("select " + shlex.join(rows[0])) == [
        " ".join(f"{name}={value}" for name, value in one.items()) for one in rows[1:]
    ]
    assert scenario.answer("verify") == ["full: kept"]


NAMES = ("firn plan", "user.id", "told_0", "FIRN SHOWN BEFORE", "firn_0", "is_transactional")


@pytest.mark.parametrize("start", range(len(NAMES)))
def test_a_column_of_any_name_may_have_any_role(scenario: Scenario, start: int) -> None:
    key, offset, dead = (NAMES * 2)[start : start + 3]
    condition = f'"{dead}"' if " " in dead else dead  # as in PyIceberg's row filters
    scenario.answer("table " + shlex.join(f"{name}=long" for name in (key, offset, dead)))
    scenario.answer("adopt " + shlex.join(["--key", key, "--offset", offset, "--tombstone", f"{condition} > 0"]))
    rows = [(1, 0, 0), (2, 1, 0), (1, 2, 1)]
    scenario.answer("rows " + " | ".join(row(dict(zip((key, offset, dead), one, strict=True))) for one in rows))
    assert scenario.answer("full!") == ["{topic}-0: 1 to 1 segments, 3 to 2 records; superseded 1"]
    told = scenario.answer("firn explain {table} --key 1 --json")
    assert any('"tombstone": true' in line for line in told)
    assert scenario.answer("verify") == ["full: kept"]
