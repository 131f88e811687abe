"""The command in this process, on the lake that it finds where the test stands."""

import json
from pathlib import Path

import pytest

from firnlake.iceberg.catalog import Lake
from tests.support.in_process import Firn, command
from tests.support.lakes import NOW, TABLE


@pytest.fixture
def lake() -> Lake:
    """The lake that the command finds: the embedded one where the test stands."""
    return Lake.load()


@pytest.fixture
def firn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Firn:
    """Run ``firn`` in this process."""
    return command(monkeypatch, capsys)


@pytest.fixture
def landed(firn: Firn, tmp_path: Path) -> str:
    """Two segments of orders-0 in a table that needs two for a merge."""
    firn("create", TABLE, "--property", "firn.merge.segments=2")
    for offset in range(2):
        path = tmp_path / f"{offset}.jsonl"
        document = {
            "key": "k",
            "value": "v",
            "topic": "orders",
            "partition": 0,
            "offset": offset,
            "timestamp": NOW - 1000,
        }
        path.write_text(json.dumps(document))
        assert firn("land", TABLE, path).code == 0
    return TABLE
