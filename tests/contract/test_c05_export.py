"""C1, C5: what an export holds lands again to the last bit: headers, types of timestamps, and what is NULL or empty."""

from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.foreign.files import on_disk
from tests.support.records import Record, rows_of
from tests.support.row_deletes import data_files
from tests.support.scenario import Scenario

OWN = "orders-0  <id>  1  1  1"


def test_c5_c20_what_somebody_else_put_on_the_branch_stays_there(scenario: Scenario) -> None:
    scenario.play("create", "json offset=1 key=null | offset=2", "full!")
    table = scenario.loaded()
    rows = table.scan().use_ref("firn_quarantine").to_arrow()
    foreign = rows.set_column(rows.column_names.index("topic"), "topic", pa.nulls(rows.num_rows, pa.string()))
    table.append(foreign.cast(table.schema().as_arrow()), branch="firn_quarantine")
    assert scenario.answer("firn quarantine {table}")[-1].strip() == OWN
    assert "orders-0  L3  1  1  <bytes>  0" in scenario.answer("firn status {table}")
    assert scenario.play("export lost.jsonl", "clear")[-1] == "{table}: 1 record removed from quarantine"
    assert scenario.loaded().scan().use_ref("firn_quarantine").to_arrow()["topic"].to_pylist() == [None]


HEADERS: list[list[dict[str, Any]] | None] = [
    None, [], [{"key": "h", "value": None}], [{"key": "", "value": b""}], [{"key": None, "value": b"x"}],
    [{"key": "trace", "value": b"1"}, {"key": "trace", "value": b""}],
]  # fmt: skip
VALUES = [None, b"", 'größe \u2028 "x"\n'.encode()]
LOST = [
    {"value": value, "offset": offset, "timestampType": (None, 0, 1)[offset % 3], "headers": headers}
    for offset, (value, headers) in enumerate(product(VALUES, HEADERS))
]


def stored(scenario: Scenario) -> list[dict[str, Any]]:
    """The records without a key as the files of main have them; PyIceberg's scan makes empty lists of NULL."""
    files = [on_disk(file.file_path) for file in data_files(scenario.loaded())]
    rows = [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist() if row["key"] is None]
    return [{name: row[name] for name in LOST[0]} for row in sorted(rows, key=lambda row: int(row["offset"]))]


@pytest.mark.nightly
@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_c1_c5_what_is_exported_lands_as_it_was(scenario: Scenario, suffix: str) -> None:
    scenario.answer("create")
    plain = rows_of([*(Record(offset, None, b"") for offset in range(len(LOST))), Record(99, b"a", b"1")])
    rows = [row | lost for row, lost in zip(plain.to_pylist(), [*LOST, {}], strict=True)]
    path = scenario.folder / "landed.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=plain.schema), path)
    scenario.table.land(path)
    assert stored(scenario) == LOST
    scenario.play("full!", f"export lost.{suffix}")
    assert scenario.answer("clear") == [f"{{table}}: {len(LOST)} records removed from quarantine"]
    scenario.answer(f"firn land {{table}} {{folder}}/lost.{suffix}")
    assert stored(scenario) == LOST
