"""A table with a key that is requested, before and after its erasure."""

import shutil
from pathlib import Path

import pytest

from firnlake.iceberg.catalog import Lake
from infra.foreign.files import on_disk
from tests.support.lakes import TABLE, append_file, row
from tests.support.proving import erase, request
from tests.support.templates import Templates


@pytest.fixture
def landed(lake: Lake, table: str, templates: Templates) -> list[str]:
    """Three files of orders-0; the first two hold key a. They are named."""
    assert table == TABLE

    def make(lake: Lake) -> tuple[str, ...]:
        batches = ([row(0, b"a"), row(1, b"b")], [row(2, b"a")], [row(3, b"d")])
        files = tuple(append_file(lake, rows) for rows in batches)
        request(lake, b"a")
        return files

    return list(templates.step(lake, "landed", make))


@pytest.fixture
def erased(lake: Lake, landed: list[str]) -> list[str]:
    """Main holds key a no more; its files are named, and copies of them are kept below `copies`."""
    for path in landed[:2]:
        shutil.copy(on_disk(path), Path(f"{on_disk(path).name}.kept"))
    return erase(lake, b"a")
