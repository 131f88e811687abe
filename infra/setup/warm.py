"""Record the classes that Spark loads for Firn, so that later Sparks start from an archive of them, and compile the
Python modules that Firn's processes import.

    python warm.py ARCHIVE

One small job of the kind that Firn runs (Python tasks), with the JVM told to write a class-data-sharing archive at its
exit. The archive fits one Java, one set of jars and one class path, or a class path that begins with it; a JVM for
which it does not fit ignores it and starts as it always did. It is written whole or not at all.

Meanwhile this process imports what the command and Airflow import, so that Python keeps their bytecode. That is less
than half of the installed code; the rest is compiled if something imports it.
"""

import os
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

JOB = """
from firnlake.engine.engine import Engines

with Engines("spark", "firn set-up") as engines:
    assert engines.of(1).map(abs, [-1, 2]) == [1, 2]
"""

IMPORTED = (
    "firnlake.cli.main",
    "firnlake_expectations.checkpoint",
    "pyiceberg.catalog.sql",
    "airflow.api_fastapi.app",
    "airflow.dag_processing.manager",
    "airflow.executors.local_executor",
    "airflow.jobs.scheduler_job_runner",
    "airflow.jobs.triggerer_job_runner",
)
"""Modules that import nearly all that Firn's processes need."""


def compile_imported() -> None:
    """Import what Firn's processes import. Airflow makes files as it is imported: they go."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["AIRFLOW_HOME"] = folder
        for name in IMPORTED:
            import_module(name)


def main() -> None:
    """Entry point."""
    archive = Path(sys.argv[1])
    unfinished = archive.with_suffix(".part")
    # What others add to the class path comes after it and does no harm later; here it would be part of the archive.
    given = {key: value for key, value in os.environ.items() if key not in ("SPARK_DIST_CLASSPATH", "SPARK_REMOTE")}
    own = {
        "SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={unfinished.resolve()} -XX:+UseSerialGC -Xlog:disable",
        "FIRN_SPARK_MASTER": "local[2]",
    }
    with subprocess.Popen(
        [sys.executable, "-c", JOB], env=given | own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as job:
        compile_imported()
        said, _ = job.communicate()
    if job.returncode != 0:
        raise SystemExit(f"firn: Spark does not start here. Its last lines:\n{said[-3000:]}")
    if unfinished.exists():
        unfinished.replace(archive)
    else:  # a JVM without class-data sharing works, only slower
        print("  this Java writes no archive: Spark will start a few seconds slower", file=sys.stderr)


if __name__ == "__main__":
    main()
