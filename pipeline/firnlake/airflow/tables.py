"""The DAGs of all tables, and `firn_maintain`, the DAG that maintains every table, even if the table's DAG is paused.

An error in the settings of one table does not affect the DAGs of the other tables.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG, Param, get_current_context, get_parsing_context, task
from airflow.sdk.exceptions import AirflowException

from firnlake.airflow.configuration import Settings, TableSettings, configured_in, look
from firnlake.airflow.dag import build, default_args, outline

log = logging.getLogger(__name__)

DAG_ID = "firn_maintain"
EVERYTHING_AT_HOUR = 0
"""Hour (UTC) of the run that does all parts of maintenance; the other runs do only the cheap parts."""
_DOC = """
### Maintenance of all tables

Every hour and for each table, this DAG discards stages that will never be published, drops removed tombstones that
are older than the table's limit, and updates the table's page and metrics. It also deletes old plan files and reports
of all tables, and looks for the tables that patterns in the configuration stand for. The run at
midnight (UTC) and manual runs also expire snapshots by the table's own `history.expire.*`, merge small manifests, and
delete files that nothing refers to. The task logs say what was removed and why; `firn maintain TABLE --dry-run` shows
what the next run would remove. This DAG needs no Spark and compacts nothing: each table has its own DAG for that.
"""


def maintain(tables: Sequence[TableSettings], patterns: Sequence[TableSettings]) -> DAG:
    """The DAG that maintains ``tables``, and looks for further tables if there are ``patterns``."""
    configured = [*tables, *patterns]
    names = [table.name for table in tables]
    with DAG(
        dag_id=DAG_ID,
        description="Maintain all tables: stale files, pages, metrics",
        doc_md=_DOC,
        tags=["firn"],
        schedule="@hourly",
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        auto_register=False,  # as for the DAGs of tables
        is_paused_upon_creation=all(one.paused for one in configured),
        default_args=default_args(Settings(owner=configured[0].owner) if configured else Settings()),
        params={
            "tables": Param(
                names,
                type="array",
                items={"type": "string", "enum": names} if names else {"type": "string"},
                examples=names,
                description="Maintain only these tables.",
            )
        },
    ) as dag:
        look_after.override(map_index_template="{{ table }}").expand(table=chosen())
        # In parallel with the tables: a failed table must not prevent this task, nor may this task hide the failure.
        if patterns:
            find_tables()
    return dag


@task
def chosen() -> list[str]:
    """The tables of this run."""
    tables: list[str] = get_current_context()["params"]["tables"]
    return tables


@task
def look_after(table: str) -> None:
    """Remove stale parts of a table, log them, and update the table's page and metrics.

    Fails at the end if a part could not be removed, and names each such part.
    """
    context = get_current_context()
    context["table"] = table  # type: ignore[typeddict-unknown-key]  # for the name of the mapped task

    from firnlake import clock
    from firnlake.airflow.figures import update
    from firnlake.iceberg.catalog import Lake
    from firnlake.maintain.maintain import ALL, HOURLY, maintain_table

    lake = Lake.load()
    run = context["dag_run"]
    everything = run.run_type == "manual" or run.run_after.astimezone(UTC).hour == EVERYTHING_AT_HOUR
    garbage = maintain_table(lake, table, clock.now_ms(), remove=True, parts=ALL if everything else HOURLY)
    for one in garbage:
        log.info("%s", one)
    update(lake, table)
    if stuck := [str(one) for one in garbage if one.exit_code]:
        raise AirflowException("\n".join(stuck))


@task
def find_tables() -> None:
    """Look for the tables that the patterns in the configuration stand for; they get their DAGs soon afterwards."""
    from firnlake.iceberg.catalog import Lake

    log.info("tables that a pattern may stand for: %s", ", ".join(look(Lake.load())) or "none")


def build_file(file: Path) -> list[DAG]:
    """Build the DAGs of the DAG file ``file``: those of all tables, and `firn_maintain`.

    A process that runs a task builds only the DAG of that task, because hundreds of other DAGs would take longer than
    the task. Raises ValueError if the list of tables is not TOML or has unknown sections.
    """
    configured = configured_in(file.parent)
    wanted = get_parsing_context().dag_id
    tables = [table for table in configured.tables if wanted in (None, table.dag_id)]
    dags, refused = _made(build, tables, configured.path)
    if wanted in (None, DAG_ID):
        dags.append(maintain(configured.tables, configured.patterns))
    if wanted is None:  # not in the log of every task
        for line in (*configured.refused, *refused):
            log.warning("%s", line)
    return dags


def refused_in(folder: Path) -> list[str]:
    """A message for each table that is refused. Builds no task.

    Raises ValueError if the list of tables is not TOML or has unknown sections.
    """
    configured = configured_in(folder)
    return [*configured.refused, *_made(outline, configured.tables, configured.path)[1]]


def _made(
    make: Callable[[TableSettings], DAG], tables: Iterable[TableSettings], path: Path
) -> tuple[list[DAG], list[str]]:
    """The DAGs that ``make`` returns for ``tables``, and a message for each table that it refuses."""
    dags, refused = [], []
    for table in tables:
        try:
            dag = make(table)
            dag.validate()  # type: ignore[no-untyped-call]  # Airflow's has no types
        except Exception as error:  # noqa: BLE001  # whatever the error is, it concerns one table
            refused.append(f"{path}: table {table.name}: {' '.join(str(error).split())}")
        else:
            dags.append(dag)
    return dags, refused
