"""C1, C5: what an export holds lands again to the last bit, with headers and the type of its timestamp."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.records import Record, rows_of
from tests.support.scenario import Scenario

HEADERS = (("trace", b"1"), ("trace", b""))
LOST = [Record(0, None, 'größe \u2028 "x"\n'.encode(), headers=HEADERS), Record(4, None, None), Record(6, None, b"")]


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_c1_c5_what_is_exported_lands_as_it_was(scenario: Scenario, suffix: str) -> None:
    scenario.answer("create")
    rows = rows_of([*LOST, Record(9, b"a", b"1")])
    path = scenario.folder / "landed.parquet"
    pq.write_table(rows.set_column(6, rows.schema.field(6), pa.array([1] * len(rows), pa.int32())), path)
    scenario.table.land(path)
    before = scenario.rows()
    scenario.answer("full!")
    scenario.answer(f"export lost.{suffix}")
    assert scenario.answer("clear") == ["{table}: 3 records removed from quarantine"]
    scenario.answer(f"firn land {{table}} {{folder}}/lost.{suffix}")
    columns = [field.name for field in scenario.loaded().schema().fields[:-2]]
    assert [[row[name] for name in columns] for row in scenario.rows()] == [
        [row[name] for name in columns] for row in before
    ]


def test_c5_keys_are_filled_in_by_hand_and_landed(scenario: Scenario) -> None:
    scenario.answer("land -=lost -=lost a=1")
    scenario.answer("full!")
    scenario.answer("export lost.jsonl")
    path = scenario.folder / "lost.jsonl"
    path.write_text(path.read_text().replace('"key": null', '"key": "found"'))
    scenario.answer("firn land {table} {folder}/lost.jsonl")
    assert scenario.answer("read") == ["found=lost@0 found=lost@1 a=1@2"]
