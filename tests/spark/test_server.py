"""Commands on a Spark Connect server: a session of each, or one that they share; and the server leaves no process."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from infra.environment import SOURCES
from infra.processes import members, started
from infra.spark_server import serving

pytestmark = pytest.mark.nightly

WORK = """
import json, os
from firnlake.engine.choice import Engines
from tests.support.engine_contract import square

def worker(_):
    return os.getppid()

told = []
with Engines("spark", "firn test", tell=told.append) as engines:
    engine = engines.of(0)
    found = {"told": told, "daemons": engine.map(worker, [1, 2, 3]), "squares": engine.map(square, [2, 3])}
print(json.dumps(found))
"""
SESSION = "session_id=11111111-1111-4111-8111-111111111111"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("server"), "local[2]") as running:
        yield running


def found_by(address: str) -> dict[str, object]:
    """What a process finds that runs tasks on the server."""
    ran = subprocess.run(
        [sys.executable, "-c", WORK],
        env=os.environ | {"SPARK_REMOTE": address, "PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, object] = json.loads(ran.stdout.splitlines()[-1])
    return found


def test_each_command_has_a_session(address: str) -> None:
    first, second = found_by(address), found_by(address)
    assert first["squares"] == second["squares"] == [4, 9]
    assert first["told"] == second["told"] == []
    assert first["daemons"] != second["daemons"]


def test_commands_share_the_session_that_the_address_names_and_its_workers(address: str) -> None:
    first, second = found_by(f"{address};{SESSION}"), found_by(f"{address};{SESSION}")
    assert first["daemons"] == second["daemons"]


def test_the_end_of_the_block_ends_the_server(tmp_path: Path) -> None:
    with serving(tmp_path, "local[2]") as address:
        running = members(started(tmp_path))
        assert [process.name() for process in running] == ["java"]
        assert all(address.partition("token=")[2] not in " ".join(process.cmdline()) for process in running)
    assert [process for process in psutil.Process().children() if process in running] == []


def test_a_server_that_does_not_start_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"server does not answer, see .*spark\.log"), serving(tmp_path, "nowhere"):
        pass
    assert "Master must either be yarn or start with" in (tmp_path / "spark.log").read_text()
