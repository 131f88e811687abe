"""Every test gets an embedded lake of its own, and no configuration of the person's."""

from pathlib import Path

import pytest

from firnlake.iceberg.catalog import Lake
from firnlake.table import records
from tests.support import lakes
from tests.support.templates import Templates


@pytest.fixture(autouse=True)
def nothing_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have PyIceberg configured, at home or where they stand."""
    for name in ("HOME", "PYICEBERG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Templates:
    """What the lakes of this process begin with."""
    return Templates(tmp_path_factory.mktemp("lakes"))


@pytest.fixture
def lake(templates: Templates) -> Lake:
    """An embedded lake without a table."""
    return templates.empty()


@pytest.fixture
def table(lake: Lake, templates: Templates) -> str:
    """The name of an empty table of records in ``lake``, with the default policy."""

    def make(lake: Lake) -> str:
        records.create(lake, lakes.TABLE, {"firn.min.dirty.bytes": "0"})
        return lakes.TABLE

    return templates.step(lake, "table", make)
