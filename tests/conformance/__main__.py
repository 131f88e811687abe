"""The long run: as many random workloads as wanted, a line per group, the figures at the end and in a file.

Exit code 1 when anything disagrees. A workload is a function of its name: the same seed shows it again.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from pipeline.lake import Lake
from pipeline.lake.spark import session
from tests.conformance import conformance
from tests.conformance.compare import Tally
from tests.conformance.workloads import groups

SUMMARIES = Path(".firn", "conformance")


def main() -> int:
    """Entry point; see --help."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--workloads", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    os.environ.setdefault("FIRN_SPARK_MASTER", "local[2]")
    os.environ.setdefault("FIRN_SHUFFLE_PARTITIONS", "2")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="firn-conformance-") as folder:
        lake = Lake.embedded(Path(folder, "lake"))
        spark = session(lake, "firn conformance")
        try:
            tally = Tally()
            for one in conformance.run(lake, spark, groups(arguments.workloads, arguments.seed), Path(folder)):
                tally += one.tally
                found = len(one.tally.disagreements)
                seconds = one.kafka_seconds + one.firn_seconds
                line = f"{one.group.name} {one.group.mode}: {one.tally.cleanings} cleanings in {seconds:.0f} s"
                print(f"{line}, {found} disagreements")
                print(*(f"  {problem}\n" for problem in one.tally.disagreements), sep="", end="", flush=True)
        finally:
            spark.stop()
    text = f"seed {arguments.seed}\n{conformance.summary(tally)}\n{time.monotonic() - started:.0f} seconds\n"
    SUMMARIES.mkdir(parents=True, exist_ok=True)
    path = SUMMARIES / f"seed-{arguments.seed}-workloads-{arguments.workloads}.txt"
    path.write_text(text, encoding="utf-8")
    print(f"{text}also in {path}")
    return 1 if tally.disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
