"""Record the classes that Spark loads for Firn, so that later Sparks start from an archive of them.

    python warm.py ARCHIVE

One small job of the kind that Firn runs (Python tasks), with the JVM told to write a class-data-sharing archive at its
exit. The archive fits one Java, one set of jars and one class path, or a class path that begins with it; a JVM for
which it does not fit ignores it and starts as it always did. It is written whole or not at all.
"""

import os
import subprocess
import sys
from pathlib import Path

JOB = """
from firnlake.engine.engine import Engines

with Engines("spark", "firn set-up") as engines:
    assert engines.of(0).map(abs, [-1, 2]) == [1, 2]
"""


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
    done = subprocess.run([sys.executable, "-c", JOB], env=given | own, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"firn: Spark does not start here. Its last lines:\n{(done.stdout + done.stderr)[-3000:]}")
    if unfinished.exists():
        unfinished.replace(archive)
    else:  # a JVM without class-data sharing works, only slower
        print("  this Java writes no archive: Spark will start a few seconds slower", file=sys.stderr)


if __name__ == "__main__":
    main()
