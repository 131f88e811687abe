"""Times ``make demo`` on this machine, set-up done: ``python -m infra.bench.demo``. For an idle machine."""

import argparse
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from infra.bench.results import DEMO, Elsewhere
from infra.environment import CHECKOUT


def main() -> int:
    """Entry point; see --help."""
    parser = argparse.ArgumentParser(prog="python -m infra.bench.demo", description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(".firn", "bench"))
    arguments = parser.parse_args()
    started = time.monotonic()
    subprocess.run(["make", "demo"], cwd=CHECKOUT, check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - started
    known = Elsewhere.read(arguments.home)
    replace(known, seconds=known.seconds | {DEMO: seconds}).write(arguments.home)
    print(f"{DEMO}: {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
