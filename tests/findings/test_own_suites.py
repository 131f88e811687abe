"""Suites of a table's owner see the types of the table: no value is another one because its neighbour is NULL."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg import types
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, LongType, NestedField, StringType

from firnlake.iceberg.catalog import Lake
from tests.support.in_process import Firn, Ran, command_on

TABLE = "shop.checked"
LARGE = 2**53 + 1
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
REF = UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
NOT_IN = "expect_column_values_to_not_be_in_set"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake of the test's own."""
    return Lake.embedded(tmp_path / "home")


@pytest.fixture
def firn(lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Firn:
    """Run ``firn`` in this process, on that lake."""
    return command_on(lake, monkeypatch, capsys)


Expected = tuple[str, dict[str, Any]]
Columns = Mapping[str, tuple[IcebergType, Sequence[Any]]]


def cleaned(
    lake: Lake, firn: Firn, columns: Columns, expected: Sequence[Expected], samples: str = "keys"
) -> tuple[Ran, list[dict[str, Any]]]:
    """A cleaning of records with these ``columns`` and keys of their own, judged by a stored suite: what the command
    said, and what each expectation found."""
    lake.create_namespace("shop")
    kinds = {"id": LongType(), "lsn": LongType()} | {name: kind for name, (kind, _) in columns.items()}
    fields = (NestedField(number, name, kind) for number, (name, kind) in enumerate(kinds.items(), start=1))
    lake.catalog.create_table(TABLE, Schema(*fields), properties={"format-version": "2"})
    suite = lake.home / "suite.json"
    suite.write_text(
        json.dumps({"name": "mine", "expectations": [{"type": kind, "kwargs": kwargs} for kind, kwargs in expected]})
    )
    chosen = (f"--property=firn.validate.suites={suite}", f"--property=firn.report.samples={samples}")
    adopted = firn("adopt", TABLE, "--key", "id", "--offset", "lsn", *chosen)
    assert adopted.code == 0, adopted.err
    table = lake.table(TABLE)
    rows = [
        {"id": place, "lsn": place} | dict(zip(columns, row, strict=True))
        for place, row in enumerate(zip(*(values for _, values in columns.values()), strict=True))
    ]
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    ran = firn("run", TABLE, "--lane", "full", "--force", "--engine", "local")
    (page,) = lake.reports_folder.glob("verdicts/*.json")
    told = json.loads(page.read_text())["verdict"]["expectations"]
    return ran, [one for one in told if one["name"].startswith("mine")]


SEEN: dict[str, tuple[IcebergType, Any, Any, Any]] = {
    "long": (LongType(), LARGE, LARGE + 1, LARGE),
    "int": (types.IntegerType(), 7, 8, 7),
    "boolean": (types.BooleanType(), True, False, True),
    "double": (types.DoubleType(), 1.5, 2.5, 1.5),
    "decimal": (types.DecimalType(38, 2), Decimal("90071992547409931.25"), Decimal("0.01"), "90071992547409931.25"),
    "date": (types.DateType(), date(2026, 1, 2), date(9999, 12, 31), "2026-01-02"),
    "zoned": (types.TimestamptzType(), MOMENT, MOMENT.replace(microsecond=7), "2026-01-02T03:04:05.000006Z"),
    "string": (StringType(), "a", "", "a"),
    "binary": (types.BinaryType(), b"a", b"", "a"),
    "uuid": (types.UUIDType(), REF.bytes, UUID(int=0).bytes, str(REF)),
}
"""By column: its type, a value that the suite forbids and one that it does not, and the former in JSON."""
FORBIDDEN = [(NOT_IN, {"column": name, "value_set": [named]}) for name, (*_, named) in SEEN.items()]


def test_b2_a_value_is_found_beside_null(lake: Lake, firn: Firn) -> None:
    """As JSON names it, whatever its type."""
    columns = {name: (kind, [good, None, bad]) for name, (kind, bad, good, _) in SEEN.items()}
    ran, found = cleaned(lake, firn, columns, FORBIDDEN)
    assert ran.code == 1
    told = {
        name: (one["observed"], [two["offset"] for two in one["samples"]])
        for name, one in zip(SEEN, found, strict=True)
    }
    assert told == dict.fromkeys(SEEN, ("1 of 3 records.", [2]))


@pytest.mark.parametrize("beside", [True, False], ids=["beside NULL", "all NULL"])
def test_b2_what_is_not_there_is_not_found(lake: Lake, firn: Firn, beside: bool) -> None:
    columns = {name: (kind, [good if beside else None, None]) for name, (kind, _, good, _) in SEEN.items()}
    ran, found = cleaned(lake, firn, columns, FORBIDDEN)
    assert ran.code == 0, found
    assert len(found) == len(SEEN)


def test_b2_a_column_has_the_tables_type(lake: Lake, firn: Firn) -> None:
    """Numbers inside of nested values, too."""
    columns: Columns = {
        "long": (LongType(), [LARGE, None, 1]),
        "boolean": (types.BooleanType(), [True, None, False]),
        "inside": (types.StructType(NestedField(20, "n", LongType())), [{"n": LARGE}, None, {"n": None}]),
    }
    kinds = {"long": "int", "boolean": "bool", "inside": "dict"}
    typed = [("expect_column_values_to_be_of_type", {"column": name, "type_": kind}) for name, kind in kinds.items()]
    ran, found = cleaned(lake, firn, columns, typed)
    assert (ran.code, [one["passed"] for one in found]) == (0, [True] * 3), found


def test_b2_nan_is_a_value(lake: Lake, firn: Firn) -> None:
    columns: Columns = {"held": (types.DoubleType(), [1.5, None, float("nan")])}
    ran, (found,) = cleaned(
        lake, firn, columns, [("expect_column_values_to_be_in_set", {"column": "held", "value_set": [1.5]})]
    )
    assert (ran.code, [one["offset"] for one in found["samples"]]) == (1, [2])


ONLY_SOME = {"type": "comparison", "column": {"name": "nowhere"}, "operator": ">", "parameter": 1}
UNKNOWN: list[Expected] = [
    ("expect_column_values_to_not_be_null", {"column": "nowhere"}),
    ("expect_column_max_to_be_between", {"column": "nowhere", "max_value": 1}),
    ("expect_column_pair_values_to_be_equal", {"column_A": "held", "column_B": "nowhere"}),
    ("expect_compound_columns_to_be_unique", {"column_list": ["held", "nowhere"]}),
    ("expect_column_values_to_not_be_null", {"column": "held", "row_condition": ONLY_SOME}),
]


def test_b3_an_unknown_column_is_named(lake: Lake, firn: Firn) -> None:
    expected = [*UNKNOWN, ("expect_column_to_exist", {"column": "nowhere"})]
    ran, found = cleaned(lake, firn, {"held": (LongType(), [1])}, expected, "none")
    reason = "It could not be checked: the records have no column nowhere; found: id, lsn, held, level, delete_horizon."
    assert [one["observed"] for one in found] == [*[reason] * len(UNKNOWN), "Not met."]
    assert ran.code == 1
    assert reason.rstrip(".") in ran.err


@pytest.mark.parametrize("samples", ["none", "keys", "full"])
def test_b3_what_records_hold_is_shown_as_reports_may(lake: Lake, firn: Firn, samples: str) -> None:
    expected: list[Expected] = [
        ("expect_column_mean_to_be_between", {"column": "text", "min_value": 1}),
        ("expect_column_values_to_be_in_set", {"column": "number", "value_set": [1]}),
        ("expect_column_distinct_values_to_be_in_set", {"column": "text", "value_set": ["a"]}),
    ]
    columns: Columns = {"text": (StringType(), ["a", "secret", None]), "number": (LongType(), [1, None, LARGE])}
    ran, found = cleaned(lake, firn, columns, expected, samples)
    mean, number, text = ({one["name"]: one for one in found}[f"mine: {kind}"] for kind, _ in expected)
    assert ran.code == 1
    assert mean["observed"].startswith("It could not be checked: ")
    assert ("does not support operation 'mean'" in mean["observed"]) is (samples == "full")
    assert ("firn.report.samples = full shows it" in mean["observed"]) is (samples != "full")
    shown = {"none": [], "keys": [None], "full": [f'{{"number": {LARGE}}}']}[samples]
    assert (number["observed"], [one["value"] for one in number["samples"]]) == ("1 of 3 records.", shown)
    assert text["observed"] == ("Unexpected: ['secret']." if samples == "full" else "Not met.")
