"""The long run: as many random workloads as wanted, a line per group, and the figures at the end.

Exit code 1 when anything disagrees. A workload is a function of its name: the same seed shows it again.
"""

import tempfile
from enum import StrEnum
from pathlib import Path

import typer

from firnlake.engine.engine import Engines
from firnlake.iceberg.catalog import Lake
from tests.conformance.compare import Tally, run
from tests.conformance.workloads import groups
from tests.support.machine import judging_late


class Where(StrEnum):
    """Where Firn's tasks run."""

    LOCAL = "local"
    SPARK = "spark"


def main(workloads: int = 300, seed: int = 1, engine: Where = Where.LOCAL) -> None:
    """Compare Firn with Kafka's own cleaner."""
    tally = Tally()
    with (
        tempfile.TemporaryDirectory(prefix="firn-conformance-") as folder,
        Engines(engine, "firn conformance") as engines,
        judging_late(),
    ):
        lake = Lake.embedded(Path(folder, "lake"))
        for group, found in run(lake, engines.of(1), groups(workloads, seed), Path(folder)):
            print(
                f"{group.name} {group.mode}: {len(found.disagreements)} disagreements", *found.disagreements, sep="\n  "
            )
            tally += found
    print(f"seed {seed}, engine {engine}", tally, sep="\n")
    raise typer.Exit(bool(tally.disagreements))


if __name__ == "__main__":
    typer.run(main)
