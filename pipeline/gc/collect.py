"""All that is collected of a table, and of Firn's home on this machine.

Whether it is only looked for or removed as well, the same is found. Each part looks again right before it deletes, so
that collectors, runs and other writers may be at work at the same time; one that dies is carried on by the next.
"""

from pipeline.gc.beside import old_beside
from pipeline.gc.data import unheld_data
from pipeline.gc.finding import Finding
from pipeline.gc.limits import Limits
from pipeline.gc.plans import old_plans
from pipeline.gc.reports import old_reports
from pipeline.gc.staged import left_stages
from pipeline.gc.waiting import Works
from pipeline.lake import Lake


def collect_table(lake: Lake, identifier: str, now_ms: int, *, remove: bool, data: bool = True) -> list[Finding]:
    """What is there to be collected of table ``identifier``: gone already with ``remove``, else only named.

    ``data`` looks for data files that no snapshot holds as well: that lists Firn's folder below the table's data
    and reads all manifests of its history. Nothing that a snapshot holds ever goes, but for records in quarantine
    and removed tombstones whose limits are properties of the table. Raises RefusedError for an unknown table or a
    wrong limit, UnavailableError when catalog or store do not answer; what was removed until then is of no use to
    anybody.
    """
    with lake.answering():
        found = left_stages(lake, identifier, now_ms, remove=remove)
        beside = old_beside(lake, identifier, now_ms, remove=remove)
        found += beside.findings
        if data:
            found += unheld_data(lake, identifier, now_ms, remove=remove, beside=beside)
        return found


def collect_home(lake: Lake, now_ms: int, *, remove: bool, works: Works | None = None) -> list[Finding]:
    """What is there to be collected in the home of ``lake``: plan files and reports, of all tables.

    ``works`` tells whether a run of the scheduler that has the lease of a table is still at work; without it every run
    that has one is believed to be. Raises RefusedError for a wrong limit.
    """
    plans, reports = Limits.of_plans(), Limits.of_reports()
    return [
        *old_plans(lake, plans, now_ms, remove=remove, works=works),
        *old_reports(lake, reports, now_ms, remove=remove),
    ]
