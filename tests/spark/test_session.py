"""Firn's own Spark session is a scheduler only, and starts without a word of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

OF_THE_JVM = "WARNING: Using incubator modules: jdk.incubator.vector\n"
"""Java's answer to an option that Spark's launcher always adds; nothing takes it back."""

STARTED = """
import json
from firnlake.engine.choice import Engines

told = []
engine = Engines("spark", "firn test", tell=told.append).of(0)
found = engine.map(abs, [-1, -2, -3])
from pyspark.sql import SparkSession
settings = dict(SparkSession.builder.getOrCreate().sparkContext.getConf().getAll())
print(json.dumps({"found": found, "told": told, "settings": settings}))
"""


def test_it_has_no_jar_no_catalog_and_no_credential_and_is_quiet(tmp_path: Path) -> None:
    own = {"FIRN_SPARK_MASTER": "local[2]", "PYICEBERG_CATALOG__SHOP__TOKEN": "open sesame", "PYSPARK_PYTHON": "/none"}
    ran = subprocess.run(
        [sys.executable, "-c", STARTED], env={**os.environ, **own}, cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, OF_THE_JVM)
    said = json.loads(ran.stdout)
    assert said["found"] == [1, 2, 3]
    assert len(said["told"]) == 1
    assert not {"spark.jars", "spark.jars.packages", "spark.driver.extraClassPath"} & set(said["settings"])
    assert not [name for name in said["settings"] if "catalog" in name]
    assert "open sesame" not in ran.stdout
