"""Kafka's own log cleaner agrees (C1 to C9, C11, C12, C16, C17): a fixed set of random workloads.

`make conformance` runs as many more as one likes.
"""

from pathlib import Path

import pytest

from firnlake.engine.engine import Engine
from firnlake.iceberg.catalog import Lake
from tests.conformance.compare import Tally, run
from tests.conformance.workloads import Mode, groups

pytestmark = pytest.mark.nightly

WORKLOADS, SEED = 40, 4


def test_kafkas_cleaner_agrees(lake: Lake, engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = list(groups(WORKLOADS, SEED))
    assert {one.mode for one in chosen} == set(Mode)
    tally = sum((tally for _, tally in run(lake, engine, chosen, tmp_path)), Tally())
    with capsys.disabled():
        print(f"\n{tally}")
    assert tally.disagreements == []
    assert tally.figures["workloads"] == WORKLOADS
    shown = ("cleanings with equal sets", "records gone", "records stamped", "records quarantined")
    assert all(tally.figures[figure] for figure in shown), "workloads that have something to show"
