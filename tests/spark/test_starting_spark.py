"""R29: a Spark that can't start is told of soon, by one line that names the address and the cause."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.environment import SOURCES

WITHIN_SECONDS = 60
GIVES_UP_SECONDS = 180
"""Spark itself looks for a master that accepts connections for a minute."""
START = """
from firnlake.engine.choice import Engines
from firnlake.errors import FirnError

try:
    Engines("spark", "firn test").of(0)
except FirnError as error:
    print(error)
"""


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of something that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    """An address at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"127.0.0.1:{listening.getsockname()[1]}"


def said(tmp_path: Path, within: float = WITHIN_SECONDS, /, **variables: str) -> str:
    """What a process says that has to start Spark; the finding if it says nothing for so many seconds."""
    started = time.monotonic()
    try:
        ran = subprocess.run(
            [sys.executable, "-c", START],
            env={**os.environ, "PYTHONPATH": SOURCES, **variables},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=within,
        )
    except subprocess.TimeoutExpired:
        pytest.fail(f"nothing for {time.monotonic() - started:.0f} s")
    return ran.stdout


def names(told: str, *words: str) -> None:
    if len(told.splitlines()) != 1 or any(word not in told for word in words):
        pytest.fail(f"not one line with {words}: {told}")


def test_r29_a_connect_server_that_is_down(tmp_path: Path, closed: str) -> None:
    told = said(tmp_path, SPARK_REMOTE=f"sc://{closed}/;token=open-sesame")
    names(told, f"sc://{closed}", "nothing listens there")
    assert "open-sesame" not in told


def test_r29_a_connect_server_that_never_answers(tmp_path: Path, silent: str) -> None:
    names(said(tmp_path, SPARK_REMOTE=f"sc://{silent}"), f"sc://{silent}", "no Spark Connect server answers there")


def test_r29_a_master_that_is_down(tmp_path: Path, closed: str) -> None:
    names(said(tmp_path, FIRN_SPARK_MASTER=f"spark://{closed}"), f"spark://{closed}", "nothing listens there")


@pytest.mark.nightly
def test_r29_a_master_that_never_answers(tmp_path: Path, silent: str) -> None:
    told = said(tmp_path, GIVES_UP_SECONDS, FIRN_SPARK_MASTER=f"spark://{silent}")
    names(told, f"spark://{silent}: java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.")


@pytest.mark.parametrize("variable", ["SPARK_REMOTE", "FIRN_SPARK_MASTER"])
def test_r29_a_host_that_does_not_exist(tmp_path: Path, variable: str) -> None:
    address = f"{'sc' if variable == 'SPARK_REMOTE' else 'spark'}://nowhere.invalid:7077"
    names(said(tmp_path, **{variable: address}), address, "no such host")
