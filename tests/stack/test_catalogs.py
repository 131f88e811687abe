"""The same workload on PostgreSQL's SQL catalog and on a REST catalog, both with an S3 warehouse.

Spark works on the same store and SQL catalog in `test_cluster.py`.
"""

from pathlib import Path

import pytest

from firnlake import clock
from firnlake.iceberg.branches import QUARANTINE, on_branch
from firnlake.iceberg.deleter import Kind
from firnlake.maintain.maintain import maintain_table
from firnlake.table.policy import DAY_MS
from infra.stack.settings import REST, SQL
from infra.stack.stack import Stack
from tests.stack.workload import Workload


@pytest.mark.parametrize("catalog", [SQL, REST])
def test_killed_in_the_middle_then_run_beside_an_appender(stack: Stack, tmp_path: Path, catalog: str) -> None:
    """C22, C25: appenders never fail, nothing is lost or seen twice, and nothing is left lying about.

    Four days later the collector finds what a dead writer has left in the store, and nothing else.
    """
    workload = Workload(stack, catalog, "shop.orders", tmp_path / "home").create()
    workload.land(8)
    with workload.firn("run", workload.table, "--until-idle") as killed:
        killed.wait_until(workload.staged_files)
        killed.kill()
    workload.check()
    with workload.firn("run", workload.table, "--until-idle") as running:
        with workload.appending():
            before = workload.published()
            running.wait_until(lambda: workload.published() >= before + 2)
            running.note_command_lines()
        assert running.ended() == 0, running.output
    workload.check_clean()
    quarantine = on_branch(workload.lake.table(workload.table), QUARANTINE)
    quarantined = quarantine.scan().to_arrow().to_pylist()
    assert [(row["partition"], row["offset"], row["key"]) for row in quarantined] == [(0, 3, None)]
    left = workload.leave_behind()
    later_ms = clock.now_ms() + 4 * DAY_MS
    shown = maintain_table(workload.lake, workload.table, later_ms, remove=False)
    assert [one.files for one in shown if one.goes and one.kind is Kind.DATA] == [1]
    assert left in workload.staged_files()
    assert maintain_table(workload.lake, workload.table, later_ms, remove=True) == shown
    workload.check_clean()
    assert workload.leaks() == []
