"""Columns of any name and type: no step reads a path in a name, or mixes columns of its own with the table's; no value
is another one for the suites of a table's owner because its neighbour is NULL."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

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


@pytest.mark.parametrize("names", [PATHS, pytest.param(INTERNAL, marks=pytest.mark.nightly)], ids=["paths", "internal"])
def test_columns_of_any_name_are_keys(scenario: Scenario, names: tuple[str, ...]) -> None:
    scenario.play(
        "table " + shlex.join([*(f"{name}=long" for name in names), "lsn=long"]),
        "adopt --offset lsn " + shlex.join(["--key", ",".join(names)]),
    )
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


@pytest.mark.nightly
def test_columns_of_any_name_stay_as_they_are(scenario: Scenario) -> None:
    names = tuple(dict.fromkeys((*PATHS, *INTERNAL)))
    scenario.play(
        "table id=long lsn=long " + shlex.join(f"{name}=string" for name in names), "adopt --key id --offset lsn"
    )
    rows = [{"lsn": lsn, "id": key} | dict.fromkeys(names, f"v{lsn}") for lsn, key in enumerate([1, 2, 1])]
    scenario.play("rows " + " | ".join(map(row, rows)), "full!")
    assert scenario.answer("select " + shlex.join(rows[0])) == [
        " ".join(f"{name}={value}" for name, value in one.items()) for one in rows[1:]
    ]
    assert scenario.answer("verify") == ["full: kept"]


NAMES = ("firn plan", "user.id", "told_0", "FIRN SHOWN BEFORE", "firn_0", "is_transactional")


@pytest.mark.parametrize(
    "start", [0, *(pytest.param(start, marks=pytest.mark.nightly) for start in range(2, len(NAMES), 2))]
)
def test_a_column_of_any_name_may_have_any_role(scenario: Scenario, start: int) -> None:
    key, offset, dead = (NAMES * 2)[start : start + 3]
    condition = f'"{dead}"' if " " in dead else dead  # as in PyIceberg's row filters
    scenario.play(
        "table " + shlex.join(f"{name}=long" for name in (key, offset, dead)),
        "adopt " + shlex.join(["--key", key, "--offset", offset, "--tombstone", f"{condition} > 0"]),
    )
    rows = [(1, 0, 0), (2, 1, 0), (1, 2, 1)]
    scenario.answer("rows " + " | ".join(row(dict(zip((key, offset, dead), one, strict=True))) for one in rows))
    assert scenario.answer("full!") == ["{topic}-0: 1 to 1 segments, 3 to 2 records; superseded 1"]
    told = scenario.answer("firn explain {table} --key 1 --json")
    assert any('"tombstone": true' in line for line in told)
    assert scenario.answer("verify") == ["full: kept"]


LARGE = 2**53 + 1
REF = "f79c3e09-677c-4bbd-a479-3f349cb785e7"
NOT_IN = "expect_column_values_to_not_be_in_set"
SEEN: dict[str, tuple[str, str, str, Any]] = {
    "whole": ("long", f"{LARGE}", f"{LARGE + 1}", LARGE),
    "small": ("int", "7", "8", 7),
    "flag": ("boolean", "true", "false", True),
    "real": ("double", "1.5", "2.5", 1.5),
    "exact": ("decimal(38,2)", "90071992547409931.25", "0.01", "90071992547409931.25"),
    "day": ("date", "2026-01-02", "9999-12-31", "2026-01-02"),
    "moment": ("timestamptz", "'2026-01-02 03:04:05.000006+00:00'", "'2026-01-02 03:04:05.000007+00:00'",
               "2026-01-02T03:04:05.000006Z"),
    "text": ("string", "a", "b", "a"),
    "octets": ("binary", "a", "b", "a"),
    "ref": ("uuid", REF, "00000000-0000-0000-0000-000000000000", REF),
}  # fmt: skip
"""By column: its type, a value that the suite forbids and one that it does not, and the former in JSON."""
COLUMNS = {name: kind for name, (kind, *_) in SEEN.items()}
FORBIDDEN = [(NOT_IN, {"column": name, "value_set": [named]}) for name, (*_, named) in SEEN.items()]


def found(
    scenario: Scenario,
    columns: Mapping[str, str],
    rows: Sequence[Mapping[str, str]],
    expected: Sequence[tuple[str, Mapping[str, Any]]],
    samples: str = "keys",
) -> list[dict[str, Any]]:
    """What each expectation of a stored suite finds when records with keys of their own are cleaned."""
    scenario.play("alone", "table id=long lsn=long " + " ".join(f"'{name}={kind}'" for name, kind in columns.items()))
    suite = scenario.folder / "suite.json"
    suite.write_text(
        json.dumps({"name": "mine", "expectations": [{"type": one, "kwargs": two} for one, two in expected]})
    )
    chosen = f"--property firn.validate.suites={suite} --property firn.report.samples={samples}"
    assert scenario.answer(f"adopt --key id --offset lsn {chosen}") == []
    texts = [" ".join(f"{name}={value}" for name, value in row.items()) for row in rows]
    scenario.play("rows " + " | ".join(f"id={place} lsn={place} {text}" for place, text in enumerate(texts)), "full!")
    scenario.answer("firn report")
    (page,) = (scenario.opened.lake.home / "reports" / "verdicts").glob("*.json")
    told = json.loads(page.read_text())["expectations"]
    return [one for one in told if one["name"].startswith("mine")]


def test_a_value_is_found_beside_null_as_json_names_it(scenario: Scenario) -> None:
    rows = [{name: SEEN[name][2] for name in SEEN}, {}, {name: SEEN[name][1] for name in SEEN}]
    told = found(scenario, COLUMNS, rows, FORBIDDEN)
    assert [(one["observed"], one["samples"][0]["offset"]) for one in told] == [("1 of 3 records.", 2)] * len(SEEN)


@pytest.mark.parametrize(
    "beside", [True, pytest.param(False, marks=pytest.mark.nightly)], ids=["beside NULL", "all NULL"]
)
def test_what_is_not_there_is_not_found(scenario: Scenario, beside: bool) -> None:
    rows = [{name: SEEN[name][2] for name in SEEN} if beside else {}, {}]
    assert [one["passed"] for one in found(scenario, COLUMNS, rows, FORBIDDEN)] == [True] * len(SEEN)


def test_a_column_has_the_tables_type_and_nan_is_a_value(scenario: Scenario) -> None:
    kinds = {"whole": "int", "flag": "bool"}
    expected: list[tuple[str, Mapping[str, Any]]] = [
        ("expect_column_values_to_be_of_type", {"column": name, "type_": kind}) for name, kind in kinds.items()
    ]
    expected.append(("expect_column_values_to_be_in_set", {"column": "real", "value_set": [1.5]}))
    rows = [{"whole": f"{LARGE}", "flag": "true", "real": "1.5"}, {}, {"whole": "1", "flag": "false", "real": "nan"}]
    *typed, held = found(scenario, COLUMNS, rows, expected)
    assert [one["passed"] for one in typed] == [True, True]
    assert [one["offset"] for one in held["samples"]] == [2]


@pytest.mark.parametrize("samples", ["none", pytest.param("keys", marks=pytest.mark.nightly), "full"])
def test_what_a_suite_finds_is_shown_as_far_as_reports_may(scenario: Scenario, samples: str) -> None:
    """Messages of wrong expectations hold values as well."""
    expected: list[tuple[str, Mapping[str, Any]]] = [
        ("expect_column_mean_to_be_between", {"column": "text", "min_value": 1}),
        ("expect_column_values_to_be_in_set", {"column": "whole", "value_set": [1]}),
        ("expect_column_distinct_values_to_be_in_set", {"column": "text", "value_set": ["a"]}),
    ]
    rows = [{"text": "a", "whole": "1"}, {"text": "secret"}, {"whole": f"{LARGE}"}]
    told = {one["name"]: one for one in found(scenario, {"text": "string", "whole": "long"}, rows, expected, samples)}
    mean, whole, text = (told[f"mine: {kind}"] for kind, _ in expected)
    assert mean["observed"].startswith("It could not be checked: ")
    assert ("does not support operation 'mean'" in mean["observed"]) is (samples == "full")
    assert whole["observed"] == "1 of 3 records."
    assert [one["offset"] for one in whole["samples"]] == ([] if samples == "none" else [2])
    assert text["observed"] == ("Unexpected: ['secret']." if samples == "full" else "Not met.")


def test_an_unknown_column_is_named(scenario: Scenario) -> None:
    only_some = {"type": "comparison", "column": {"name": "nowhere"}, "operator": ">", "parameter": 1}
    unknown: list[tuple[str, Mapping[str, Any]]] = [
        ("expect_column_values_to_not_be_null", {"column": "nowhere"}),
        ("expect_column_max_to_be_between", {"column": "nowhere", "max_value": 1}),
        ("expect_column_pair_values_to_be_equal", {"column_A": "held", "column_B": "nowhere"}),
        ("expect_compound_columns_to_be_unique", {"column_list": ["held", "nowhere"]}),
        ("expect_column_values_to_not_be_null", {"column": "held", "row_condition": only_some}),
    ]
    told = found(scenario, {"held": "long"}, [{"held": "1"}], unknown)
    reason = "It could not be checked: the records have no column nowhere; found: id, lsn, held, level, delete_horizon."
    assert [one["observed"] for one in told] == [reason] * len(unknown)


def test_status_counts_the_tombstones_that_metadata_tell(scenario: Scenario) -> None:
    for line in ("alone", "create", "land a=1 b=1 | a="):
        scenario.answer(line)
    (part,) = scenario.table.status().partitions
    assert [level.tombstones for level in part.levels] == [1]
