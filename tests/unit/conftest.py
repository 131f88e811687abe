"""Every unit test that needs a lake gets an embedded one of its own, and no configuration of the person's."""

import sqlite3
from pathlib import Path

import pytest
from hypothesis import settings
from sqlalchemy import Engine, event
from sqlalchemy.pool import ConnectionPoolEntry

from pipeline.lake import Lake, records
from pipeline.plan import Plan
from tests.support import lakes

# Hypothesis fails an example that takes more than 200 ms: on a busy machine that says nothing about the code.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@event.listens_for(Engine, "connect")
def nothing_to_survive(connection: object, _: ConnectionPoolEntry) -> None:
    """No test outlives a power cut: SQLite need not wait for the disk."""
    if isinstance(connection, sqlite3.Connection):  # other tests of the same process have other databases
        connection.execute("PRAGMA synchronous = OFF")


@pytest.fixture(autouse=True)
def nothing_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have PyIceberg configured, at home or where they stand."""
    for name in ("HOME", "PYICEBERG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An embedded lake without a table."""
    return Lake.embedded(tmp_path / "home")


@pytest.fixture
def table(lake: Lake) -> str:
    """The name of an empty table of records in ``lake``, with the default policy."""
    records.create(lake, lakes.TABLE, {})
    return lakes.TABLE


@pytest.fixture
def plan(lake: Lake, table: str) -> Plan:
    """A full plan over two segments of orders-0, the first of which the second supersedes."""
    assert table
    lakes.append_two(lake, lakes.row(0), lakes.row(1))
    return lakes.only_plan(lake)
