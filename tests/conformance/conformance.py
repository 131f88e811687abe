"""Run groups of workloads through both sides and compare."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from firnlake.engine.engine import Engine
from firnlake.iceberg.catalog import Lake
from tests.conformance import firn, kafka
from tests.conformance.compare import Rule, Tally, compare
from tests.conformance.workloads import Group


class Compared(NamedTuple):
    """One group's outcome; seconds are wall time."""

    group: Group
    tally: Tally
    kafka_seconds: float
    firn_seconds: float


def run(lake: Lake, engine: Engine, groups: Iterable[Group], scratch: Path) -> Iterator[Compared]:
    """Compare group by group: Kafka's cleaner for all first (one JVM), then Firn for each."""
    chosen = list(groups)
    started = time.monotonic()
    answers = iter(kafka.clean([workload for group in chosen for workload in group.workloads], scratch))
    kafka_seconds = time.monotonic() - started
    for group in chosen:
        started = time.monotonic()
        firns = firn.clean(lake, engine, group)
        tally = compare(group, [next(answers) for _ in group.workloads], firns)
        yield Compared(group, tally, kafka_seconds / len(chosen), time.monotonic() - started)


def summary(tally: Tally) -> str:
    """The figures, a line each."""
    lines = [
        f"{tally.workloads} workloads, {tally.records:,} records appended",
        f"{tally.cleanings} cleanings of a topic partition compared, {tally.passes} passes of Kafka's cleaner",
        f"{tally.equal} with equal sets, {tally.cleanings - tally.equal} that differ by a rule",
        *(f"  {tally.differences[rule]:>6} × {rule}" for rule in Rule),
        f"after cleanings: {tally.removed:,} records gone, {tally.stamps:,} stamped, {tally.null_keys:,} quarantined",
        f"{len(tally.disagreements)} disagreements",
    ]
    return "\n".join(lines)
