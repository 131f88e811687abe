"""Firn's tasks on a Spark Connect server: the same engine, and no JVM in this process."""

import json
import os
import subprocess
import sys
from pathlib import Path

from infra.environment import SOURCES

WORK = """
import json
from functools import partial
from firnlake.engine.choice import Engines
from tests.support.engine_contract import die_on

with Engines("spark", "firn test") as engines:
    engine = engines.of(0)
    print(json.dumps({
        "parallelism": engine.parallelism,
        "mapped": engine.map(abs, [-1, -2, -3]),
        "lost": [type(one).__name__ for one in engine.map(partial(die_on, 2), [1, 2, 3])],
    }))
"""


def test_c20_map_and_a_worker_that_dies(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WORK],
        # Spark starts a server of its own for such an address.
        env={**os.environ, "SPARK_REMOTE": "local[2]", "PYTHONPATH": SOURCES},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1]) == {
        "parallelism": 2,
        "mapped": [1, 2, 3],
        "lost": ["int", "WorkerLostError", "int"],
    }
