"""``make nightly``: the nets that take too long for ``make test``, a part of each by default, within 75 minutes.

    python -m tests.nightly          # 100 seeds, a tenth of the histories, a fifth of the mutants, a soak of 5 minutes
    python -m tests.nightly --all    # everything, for a machine that has a night

Seeds and mutants go with the date, so each night tries others; what ran is printed as calls of `make`, which repeat it.
Two steps run at a time, as most of them have waits or one busy process. Exit code 1 when a step fails.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from typing import Final

from tests.nets.mistakes import ROOT, Kind, listed

SEEDS: Final = 100
NIGHTS: Final = 5
"""Nights after which each mutant was tried."""
AT_A_TIME: Final = 2


Step = Sequence[str]
"""A target of `make` with its variables."""


def steps_of(day: date) -> list[Step]:
    """A part of each net, the longest first: it decides when the run ends."""
    first = day.toordinal() * SEEDS
    numbers = [mutant.number for mutant in listed(Kind.MUTANTS) if mutant.number % NIGHTS == day.toordinal() % NIGHTS]
    return [
        ["test-nightly"],
        ["mutants", f"NUMBERS={','.join(map(str, numbers))}"],
        ["defects"],
        ["histories", "TIMES=1"],
        ["row-deletes", "HISTORIES=30"],
        ["soak", "SOAK_SECONDS=300"],
        ["trials", f"SEEDS={first}-{first + SEEDS - 1}"],
        ["conformance", "WORKLOADS=30", f"SEED={day.toordinal()}"],
        ["fuzz", "EXAMPLES=300"],
    ]


def main(arguments: Sequence[str]) -> int:
    """Run the steps and print what each of them said; the exit code is 0 when all have passed."""
    parser = argparse.ArgumentParser(prog="make nightly")
    parser.add_argument("--all", action="store_true", help="everything, not a part of it")
    steps = steps_of(datetime.now(UTC).date())
    if parser.parse_args(arguments).all:
        steps = [*([target] for target, *_ in steps), ["stack-test"]]
    started = time.monotonic()
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        passed = list(pool.map(_run, steps))
    print(f"\n== make nightly ran in {(time.monotonic() - started) / 60:.0f} min")
    print(*(line for _, line in passed), sep="\n")
    failed = sum(not one for one, _ in passed)
    print(f"{len(passed) - failed} passed, {failed} failed")
    return int(failed > 0)


def _run(step: Step) -> tuple[bool, str]:
    """True if the step has passed, and its line of the summary."""
    command, started = ["make", *step], time.monotonic()
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(f"\n== {' '.join(command)}\n{done.stdout}", flush=True)
    result = f"FAILED ({done.returncode})" if done.returncode else "passed"
    minutes = (time.monotonic() - started) / 60
    return done.returncode == 0, f"{result:<11}{minutes:5.1f} min  {' '.join(command)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
