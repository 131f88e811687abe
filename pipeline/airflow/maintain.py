"""The DAG `firn_maintain`: between runs somebody has to look after every table, busy or not."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Param, get_current_context, task

from pipeline.airflow.configuration import Settings, TableSettings
from pipeline.airflow.dag import default_args

log = logging.getLogger(__name__)

DAG_ID = "firn_maintain"
PLANS_KEPT = timedelta(days=1)
_DOC = """
### Looking after all tables

Every hour, for each table: stages that nobody will publish are discarded, old plan files deleted, the table's page and
its metrics brought up to date. No Spark, and nothing is compacted: that is what the DAG of each table does.
"""


def maintain(tables: Sequence[TableSettings]) -> DAG:
    """The DAG that looks after ``tables``."""
    names = [table.name for table in tables]
    with DAG(
        dag_id=DAG_ID,
        description="Look after all tables: stages, old plans, pages, metrics",
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
        looked: Any = look_after.override(map_index_template="{{ table }}").expand(table=chosen())
        old: Any = forget_plans()
        looked >> old
    return dag


@task
def chosen() -> list[str]:
    """The tables of this run."""
    found: list[str] = get_current_context()["params"]["tables"]
    return found


@task
def look_after(table: str) -> None:
    """Sweep the stages of a table, say which, and bring its page and its metrics up to date."""
    get_current_context()["table"] = table  # type: ignore[typeddict-unknown-key]  # for the name of the mapped task

    from pipeline import clock
    from pipeline.airflow.signals import send
    from pipeline.lake import Lake
    from pipeline.stage import sweep

    lake = Lake.load()
    swept = sweep(lake, table)
    for name, reason in (swept.discarded | swept.shelved | swept.kept).items():
        log.info("%s: %s", name, reason)
    send(lake, table, clock.now_ms())


@task
def forget_plans() -> None:
    """Delete plan files that no run can want any more."""
    from pipeline import clock
    from pipeline.lake import Lake
    from pipeline.plan import forget_plans_before

    before_ms = clock.now_ms() - PLANS_KEPT // timedelta(milliseconds=1)
    for path in forget_plans_before(Lake.load().plans_folder, before_ms):
        log.info("deleted %s", path)
