"""What docs/tables.md says of writers of an adopted table."""

import pyarrow as pa
import pytest

from tests.support import row_deletes
from tests.support.foreign import append_again
from tests.support.scenario import Scenario

ROWS = pa.table({"id": pa.array([1], pa.int64()), "lsn": pa.array([1], pa.int64())})


@pytest.mark.parametrize(
    ("kept", "properties"), [("", ""), (" --keep-partitioning", ""), ("", " ; write.upsert.enabled=true")]
)
def test_an_append_of_the_same_columns(scenario: Scenario, kept: str, properties: str) -> None:
    scenario.do_table(f"id=long lsn=long{properties}")
    scenario.loaded().append(ROWS)
    scenario.answer("adopt --key id --offset lsn" + kept)
    rows = ROWS
    if not (kept or properties):
        with pytest.raises(KeyError, match='Field "level" does not exist in schema'):
            scenario.loaded().append(rows)
        rows = rows.append_column("level", pa.nulls(len(rows), pa.int32()))
    scenario.loaded().append(rows)
    assert scenario.loaded().scan().to_arrow()["level"].to_pylist() == [None, None]


def test_a_file_that_is_listed_twice_has_copies(scenario: Scenario) -> None:
    scenario.do_table("id=long lsn=long")
    scenario.do_rows("id=1 lsn=1 | id=2 lsn=2")
    (file,) = row_deletes.data_files(scenario.loaded())
    append_again(scenario.opened.lake, file.file_path, identifier=scenario.name)
    assert scenario.answer("only repeated firn adopt {table} --key id --offset lsn --dry-run") == ["none"]
