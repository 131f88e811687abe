"""Firn's own Spark session is a scheduler only, and starts without a word of its own. One that can't start is told of
soon, by one line that names the address and the cause (R29).
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from infra.environment import SOURCES

GIVES_UP_SECONDS = 180
"""Spark itself looks for a master that accepts connections for a minute; all other answers come within that."""
OF_THE_JVM = "WARNING: Using incubator modules: jdk.incubator.vector\n"
"""Java's answer to an option that Spark's launcher always adds; nothing takes it back."""
START = """
import json, sys
from firnlake.engine.choice import Engines
from firnlake.errors import FirnError

told = []
try:
    found = Engines("spark", "firn test", tell=told.append).of(0).map(abs, [-1, -2, -3])
except FirnError as error:
    print(error)
    sys.exit()
from pyspark.sql import SparkSession
settings = dict(SparkSession.builder.getOrCreate().sparkContext.getConf().getAll())
print(json.dumps({"found": found, "told": told, "settings": settings}))
"""
STOPPED = "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."


def started(folder: Path, within: float = 60, /, **variables: str) -> "subprocess.CompletedProcess[str]":
    """A process that starts Spark, which may take so many seconds."""
    command, known = [sys.executable, "-c", START], {"PYTHONPATH": SOURCES, **variables}
    return subprocess.run(
        command, env=os.environ | known, cwd=folder, capture_output=True, text=True, check=False, timeout=within
    )


def test_it_has_no_jar_no_catalog_and_no_credential_and_is_quiet(tmp_path: Path) -> None:
    own = {"FIRN_SPARK_MASTER": "local[2]", "PYICEBERG_CATALOG__SHOP__TOKEN": "open sesame", "PYSPARK_PYTHON": "/none"}
    ran = started(tmp_path, **own)
    assert (ran.returncode, ran.stderr) == (0, OF_THE_JVM)
    said = json.loads(ran.stdout)
    assert said["found"] == [1, 2, 3]
    assert len(said["told"]) == 1
    assert not {"spark.jars", "spark.jars.packages", "spark.driver.extraClassPath"} & set(said["settings"])
    assert not [name for name in said["settings"] if "catalog" in name]
    assert "open sesame" not in ran.stdout


@pytest.mark.parametrize(
    ("variable", "scheme", "at", "said", "within"),
    [
        ("SPARK_REMOTE", "sc", "closed", "nothing listens there", 60),
        ("SPARK_REMOTE", "sc", "silent", "no Spark Connect server answers there", 60),
        ("SPARK_REMOTE", "sc", "nowhere", "no such host", 60),
        ("FIRN_SPARK_MASTER", "spark", "closed", "nothing listens there", 60),
        ("FIRN_SPARK_MASTER", "spark", "nowhere", "no such host", 60),
        pytest.param("FIRN_SPARK_MASTER", "spark", "silent", STOPPED, GIVES_UP_SECONDS, marks=pytest.mark.nightly),
    ],
)
def test_r29_where_no_spark_answers(
    tmp_path: Path, variable: str, scheme: str, at: str, said: str, within: float
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = "nowhere.invalid:7077" if at == "nowhere" else f"127.0.0.1:{listening.getsockname()[1]}"
        if at == "closed":
            listening.close()
        more = "/;token=open-sesame" if scheme == "sc" and at == "closed" else ""
        told = started(tmp_path, within, **{variable: f"{scheme}://{address}{more}"}).stdout
    assert len(told.splitlines()) == 1
    assert f"{scheme}://{address}" in told
    assert said in told
    assert "open-sesame" not in told
