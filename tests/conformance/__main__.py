"""The long run: as many random workloads as wanted, a line per group, the figures at the end and in a file.

Exit code 1 when anything disagrees. A workload is a function of its name: the same seed shows it again.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from firnlake.engine.choice import Engines
from firnlake.iceberg.catalog import Lake
from tests.conformance import conformance
from tests.conformance.compare import Tally
from tests.conformance.workloads import groups
from tests.support.machine import judging_late

SUMMARIES = Path(".firn", "conformance")


def main() -> int:
    """Entry point; see --help."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--workloads", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=("local", "spark"), default="local", help="where Firn's tasks run")
    arguments = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="firn-conformance-") as folder:
        lake = Lake.embedded(Path(folder, "lake"))
        engines = Engines(arguments.engine, "firn conformance")
        try:
            engine = engines.of(0)
            tally = Tally()
            for one in conformance.run(lake, engine, groups(arguments.workloads, arguments.seed), Path(folder)):
                tally += one.tally
                found = len(one.tally.disagreements)
                spent = one.kafka_seconds + one.firn_seconds
                line = f"{one.group.name} {one.group.mode}: {one.tally.cleanings} cleanings in {spent:.0f} s"
                print(f"{line}, {found} disagreements")
                print(*(f"  {problem}\n" for problem in one.tally.disagreements), sep="", end="", flush=True)
        finally:
            engines.close()
    seconds = time.monotonic() - started
    head = f"seed {arguments.seed}, engine {arguments.engine}"
    text = f"{head}\n{conformance.summary(tally)}\n{seconds:.0f} seconds\n"
    SUMMARIES.mkdir(parents=True, exist_ok=True)
    path = SUMMARIES / f"seed-{arguments.seed}-workloads-{arguments.workloads}.txt"
    path.write_text(text, encoding="utf-8")
    print(f"{text}also in {path}")
    return 1 if tally.disagreements else 0


if __name__ == "__main__":
    with judging_late():
        sys.exit(main())
