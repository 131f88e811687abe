"""Marks in a file: read as they were stored, and a damaged file is an error that the task of a plan may raise (C26)."""

from pathlib import Path

import numpy as np
import pytest

from firnlake.compact import marks
from firnlake.compact.marks import Marks, store
from firnlake.iceberg.data_files import DataFiles
from tests.support.plan_inputs import Held, Row, plan_inputs


@pytest.fixture
def files(tmp_path: Path) -> DataFiles:
    return plan_inputs(tmp_path, [Held(0, [Row(0, b"k")])]).files


def test_marks_are_read_as_they_were_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: DataFiles) -> None:
    """In one row group or several, and also those of a segment without records."""
    monkeypatch.setattr(marks, "ROWS", 2)
    flags = np.array([True, False, False, True, True])
    own = {
        "a": Marks(5, newest=flags, has_older=~flags),
        "b": Marks(0),
        "c": Marks(1),
        "d": Marks(2, repeated=flags[:2]),
    }
    for path, stored in store(own, f"file://{tmp_path}/m.parquet", files).items():
        read = stored.read(files)
        assert read.records == own[path].records
        for name, expected in own[path].flags().items():
            np.testing.assert_array_equal(getattr(read, name), expected)


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.9])
def test_c26_a_file_that_was_cut_off_is_an_error_of_the_store(tmp_path: Path, files: DataFiles, share: float) -> None:
    stored = store({"a": Marks(3)}, f"file://{tmp_path}/m.parquet", files)["a"]
    path = tmp_path / "m.parquet"
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(OSError, match=r"m\.parquet is damaged"):
        stored.read(files)
