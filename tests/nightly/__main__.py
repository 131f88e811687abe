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
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Final

from tests.nets.mistakes import ROOT, Kind, listed

if TYPE_CHECKING:
    from collections.abc import Sequence

SEEDS: Final = 100
NIGHTS: Final = 5
"""Nights after which each mutant was tried."""
AT_A_TIME: Final = 2


@dataclass(frozen=True)
class Step:
    """A target of `make` with its variables."""

    target: str
    variables: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        """What repeats this step."""
        return ["make", self.target, *self.variables]


@dataclass(frozen=True)
class Ended:
    """A step that has run for ``seconds``."""

    step: Step
    code: int
    seconds: float
    output: str

    @property
    def line(self) -> str:
        """One line of the summary."""
        result = "passed" if self.code == 0 else f"FAILED ({self.code})"
        return f"{result:<11}{self.seconds / 60:5.1f} min  {' '.join(self.step.command)}"


def steps_of(day: date) -> list[Step]:
    """A part of each net, the longest first: it decides when the run ends."""
    first = day.toordinal() * SEEDS
    seeds = f"SEEDS={first}-{first + SEEDS - 1}"
    numbers = [mutant.number for mutant in listed(Kind.MUTANTS) if mutant.number % NIGHTS == day.toordinal() % NIGHTS]
    return [
        Step("test-nightly"),
        Step("mutants", (f"NUMBERS={','.join(map(str, numbers))}",)),
        Step("defects"),
        Step("histories", ("TIMES=1",)),
        Step("row-deletes", ("HISTORIES=30",)),
        Step("soak", ("SOAK_SECONDS=300",)),
        Step("trials", (seeds,)),
        Step("conformance", ("WORKLOADS=30", f"SEED={day.toordinal()}")),
        Step("fuzz", ("EXAMPLES=300",)),
    ]


def every_step() -> list[Step]:
    """Each net as a whole."""
    names = ["test-nightly", "mutants", "defects", "histories", "row-deletes", "soak", "trials"]
    names += ["conformance", "fuzz", "load", "stack-test"]
    return [Step(name) for name in names]


def main(arguments: Sequence[str]) -> int:
    """Run the steps and print what each of them said; the exit code is 0 when all have passed."""
    parser = argparse.ArgumentParser(prog="make nightly")
    parser.add_argument("--all", action="store_true", help="everything, not a part of it")
    steps = every_step() if parser.parse_args(arguments).all else steps_of(datetime.now(UTC).date())
    started = time.monotonic()
    ended: list[Ended] = []
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for running in as_completed([pool.submit(_run, step) for step in steps]):
            ended.append(running.result())
            print(f"\n== {' '.join(ended[-1].step.command)}\n{ended[-1].output}", flush=True)
    print(f"\n== make nightly ran in {(time.monotonic() - started) / 60:.0f} min")
    for step in ended:
        print(step.line)
    failed = sum(step.code != 0 for step in ended)
    print(f"{len(ended) - failed} passed, {failed} failed")
    return int(failed > 0)


def _run(step: Step) -> Ended:
    started = time.monotonic()
    done = subprocess.run(
        step.command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return Ended(step, done.returncode, time.monotonic() - started, done.stdout)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
