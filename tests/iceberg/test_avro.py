"""A few columns of manifests and manifest lists, as PyIceberg reads them."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.avro.file import MAGIC, AvroOutputFile
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS
from pyiceberg.table import Table

from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.manifests import DAMAGED, records
from tests.support.examples import bounded
from tests.support.lakes import append, row


@pytest.fixture
def written(lake: Lake, table: str) -> Table:
    """Manifests with several files each, deleted ones among them."""
    for start in (0, 10, 20):
        append(lake, [row(start + number, partition=number) for number in range(3)])
    lake.table(table).delete("partition = 1")
    return lake.table(table)


def content(table: Table, location: str) -> bytes:
    with table.io.new_input(location).open() as stream:
        return stream.read()


def found(table: Table, location: str, *columns: int) -> list[list[Any]]:
    return [list(one) for one in records(content(table, location), columns)]


@pytest.mark.parametrize("columns", [(), (500,), (517, 500), (507,)])
def test_records_that_share_a_block_are_read_to_their_end(written: Table, columns: tuple[int, ...]) -> None:
    """As Java writes them; PyIceberg gives each entry a block of its own."""
    snapshot = written.current_snapshot()
    assert snapshot is not None
    manifests = snapshot.manifests(written.io)
    schema = MANIFEST_LIST_FILE_SCHEMAS[2]
    location = f"{written.location()}/metadata/one-block.avro"
    with AvroOutputFile[Any](written.io.new_output(location), schema, "manifest_file") as output:
        output.write_block([*manifests, *manifests])
    places = [[field.field_id for field in schema.fields].index(column) for column in columns if column != 507]
    told = [[one[place] for place in places] for one in (*manifests, *manifests)]
    if 507 in columns:
        assert len(found(written, location, *columns)) == len(told)
    else:
        assert found(written, location, *columns) == told


@given(st.data())
@bounded(200)
def test_a_damaged_file_is_read_or_is_one_of_the_errors_of_damaged_files(written: Table, data: st.DataObject) -> None:
    whole = content(written, written.metadata.snapshots[-1].manifest_list)
    start = data.draw(st.integers(len(MAGIC), len(whole) - 1))
    damage = data.draw(st.binary(min_size=1, max_size=24))
    rest = whole[start + len(damage) :] if data.draw(st.booleans()) else b""
    with suppress(*DAMAGED):
        list(records(whole[:start] + damage + rest, (500, 501)))
