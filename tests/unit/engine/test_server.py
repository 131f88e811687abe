"""The shared Spark server as far as it needs no Spark: who may use its folder, and how its address is written."""

import os
import uuid
from pathlib import Path

import pytest

from firnlake.engine import server
from firnlake.engine.session import shares_session, with_session
from firnlake.errors import RefusedError

SESSION = uuid.UUID("11111111-1111-4111-8111-111111111111")


@pytest.mark.parametrize("mode", [0o750, 0o702, 0o777])
def test_a_folder_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    folder.chmod(mode)
    for use in (lambda: server.join(folder, "firn test"), lambda: server.stop(folder)):
        with pytest.raises(RefusedError, match=r"server is not private; allowed: a folder of this user, with mode 700"):
            use()
    assert list(folder.iterdir()) == []


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "server").symlink_to(tmp_path / "private")
    with pytest.raises(RefusedError, match="is not private"):
        server.join(tmp_path / "server", "firn test")


def test_what_a_dead_server_has_left_is_no_server(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    folder.mkdir(mode=0o700)
    (folder / "server").write_text(f'{{"pid": {os.getpid()}, "port": 1}}\n')
    (folder / "log").write_text("the last words\n")
    assert server.running(folder) is None
    assert server.stop(folder) == "the last words"
    assert not folder.exists()
    assert server.stop(folder) == ""


@pytest.mark.parametrize(
    ("address", "with_it"),
    [
        ("sc://one", f"sc://one/;session_id={SESSION}"),
        ("sc://one:15002/", f"sc://one:15002/;session_id={SESSION}"),
        ("sc://one/;token=a%2Fb;use_ssl=true", f"sc://one/;token=a%2Fb;use_ssl=true;session_id={SESSION}"),
        ("sc://one/;session_id=42;token=a", "sc://one/;session_id=42;token=a"),
    ],
)
def test_an_address_gets_a_session_unless_it_has_one(address: str, with_it: str) -> None:
    assert with_session(address, SESSION) == with_it


@pytest.mark.parametrize(
    ("name", "value", "shared"),
    [
        ("SPARK_REMOTE", "sc://one", False),
        ("SPARK_REMOTE", f"sc://one/;session_id={SESSION}", True),
        ("FIRN_SPARK_SERVER", "folder", True),
        ("FIRN_SPARK_MASTER", "local[2]", False),
    ],
)
def test_a_session_that_others_may_use_is_not_ended(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, shared: bool
) -> None:
    for variable in ("SPARK_REMOTE", "FIRN_SPARK_SERVER", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(name, value)
    assert shares_session() is shared
