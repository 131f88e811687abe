"""The DAG `firn_maintain`: maintenance of every table between runs, busy or not."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from airflow.sdk import DAG, Param, get_current_context, task

from pipeline.airflow.configuration import Settings, TableSettings, dag_id_of
from pipeline.airflow.dag.table import default_args

log = logging.getLogger(__name__)

DAG_ID = "firn_maintain"
DATA_AT_HOUR = 0
"""Hour (UTC) of the run that searches for unreferenced data files, which means listing all files."""
_DOC = """
### Looking after all tables

Every hour, for each table: stages that nobody will publish are discarded, what lies in quarantine or among the removed
tombstones for longer than the table's limits leaves those branches, the table's page and its metrics are brought up to
date. Old plan files and reports go, of all tables. The run of midnight (UTC) and those by hand also delete data files
of Firn's that no snapshot holds. What was removed, and why, stands in the logs of the tasks; `firn gc TABLE` shows what
would be. No Spark, and nothing is compacted: that is what the DAG of each table does. Snapshots of the tables are not
expired: that is for their owners.
"""


def maintain(tables: Sequence[TableSettings]) -> DAG:
    """The DAG that maintains ``tables``."""
    names = [table.name for table in tables]
    with DAG(
        dag_id=DAG_ID,
        description="Look after all tables: stale files, pages, metrics",
        doc_md=_DOC,
        tags=["firn"],
        schedule="@hourly",
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=all(table.paused for table in tables),
        default_args=default_args(Settings(owner=tables[0].owner) if tables else Settings()),
        params={
            "tables": Param(
                names,
                type="array",
                items={"type": "string", "enum": names} if names else {"type": "string"},
                examples=names,
                description="Only these tables.",
            )
        },
    ) as dag:
        look_after.override(map_index_template="{{ table }}").expand(table=chosen())
        # In parallel with the tables: a failing table must not prevent it, and its success must not hide the failure.
        tidy_home()
    return dag


@task
def chosen() -> list[str]:
    """The tables of this run."""
    found: list[str] = get_current_context()["params"]["tables"]
    return found


@task
def look_after(table: str) -> None:
    """Remove what is stale of a table, log it, and bring its page and its metrics up to date."""
    context = get_current_context()
    context["table"] = table  # type: ignore[typeddict-unknown-key]  # for the name of the mapped task

    from pipeline import clock
    from pipeline.airflow.signals.metrics import send
    from pipeline.gc import collect_table
    from pipeline.lake import Lake

    lake = Lake.load()
    run = context["dag_run"]
    data = run.run_type == "manual" or run.run_after.astimezone(UTC).hour == DATA_AT_HOUR
    for found in collect_table(lake, table, clock.now_ms(), remove=True, data=data):
        log.info("%s", found)
    send(lake, table, clock.now_ms())


@task
def tidy_home() -> None:
    """Delete plan files and reports, of all tables, that are beyond their limits and that nobody waits for."""
    context = get_current_context()

    from pipeline import clock
    from pipeline.airflow.dag import reports
    from pipeline.gc import Kind, collect_home
    from pipeline.lake import Lake

    def works(table: str, run_id: str) -> bool:
        counted = context["ti"].get_dr_count(dag_id_of(table), run_ids=[run_id], states=["queued", "running"])
        return counted > 0

    lake = Lake.load()
    found = collect_home(lake, clock.now_ms(), remove=True, works=works)
    for one in found:
        log.info("%s", one)
    if any(one.goes and one.kind is Kind.REPORT for one in found):
        # The front page lists the existing reports.
        reports.build(lake)
