"""Record the classes that Spark loads for Firn, so that later Sparks start from an archive of them, and compile the
Python modules that Firn's processes import.

One small job of the kind that Firn runs (Python tasks), with the JVM told to write a class-data-sharing archive at its
exit. The archive fits one Java, one set of jars and one class path, or a class path that begins with it; a JVM for
which it does not fit ignores it and starts as it always did.

Meanwhile this process imports what the command and Airflow import, so that Python keeps their bytecode. That is less
than half of the installed code; the rest is compiled if something imports it.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Final

IMPORTED: Final = (
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


def representative_job() -> None:
    """Touch what a lane touches: tasks in Python workers."""
    from firnlake.engine.choice import Engines

    with Engines("spark", "firn set-up") as engines:
        results = engines.of(0).map(abs, [-1, 2])
    assert results == [1, 2], results


def compile_imported() -> None:
    """Import what Firn's processes import. Airflow makes files as it is imported: they go."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["AIRFLOW_HOME"] = folder
        for name in IMPORTED:
            import_module(name)


def main() -> int:
    """Entry point: writes the archive, whole or not at all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, help="where the archive goes")
    parser.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        representative_job()
        return 0
    unfinished = arguments.archive.with_suffix(".part")
    own = {
        "SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={unfinished.resolve()} -XX:+UseSerialGC -Xlog:disable",
        "FIRN_SPARK_MASTER": "local[2]",
    }
    # What others add to the class path comes after it and does no harm later; here it would be part of the archive.
    given = {key: value for key, value in os.environ.items() if key not in ("SPARK_DIST_CLASSPATH", "SPARK_REMOTE")}
    job = subprocess.Popen(
        [sys.executable, __file__, "--job", str(arguments.archive)],
        env=given | own,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    compile_imported()
    said, _ = job.communicate()
    if job.returncode != 0:
        print(f"firn: Spark does not start here. Its last lines:\n{said[-3000:]}", file=sys.stderr)
        return 1
    if unfinished.exists():
        unfinished.replace(arguments.archive)
    else:  # a JVM without class-data sharing works, only slower
        print("  this Java writes no archive: Spark will start a few seconds slower", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
