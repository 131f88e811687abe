"""The DAGs of all tables: what is wrong with one table keeps no other from its DAG."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow.sdk import DAG, get_parsing_context

from pipeline.airflow.configuration import dag_id_of, read_tables
from pipeline.airflow.dag.maintain import DAG_ID, maintain
from pipeline.airflow.dag.table import build


@dataclass(frozen=True)
class Built:
    """The DAGs of the tables that have one, with `firn_maintain`, and a line for each table that is refused."""

    dags: Sequence[DAG]
    refused: Sequence[str]


def build_all(folder: Path) -> Built:
    """Build the DAGs of the tables in FIRN_TABLES, by default ``firn.toml`` in ``folder``.

    A process that runs a task builds the table's DAG alone: with hundreds of tables, the others take longer than it.

    Raises ValueError when that file names no tables at all: it is no TOML, or has other sections.
    """
    path = Path(os.environ.get("FIRN_TABLES") or folder / "firn.toml")
    tables, refused = read_tables(path)
    wanted = get_parsing_context().dag_id
    watched = [table.name for table in tables if table.watched]
    dags, built = [], []
    for table in tables:
        if wanted not in (None, DAG_ID, dag_id_of(table.name)):
            continue
        try:
            dag = build(table, watched)
            dag.validate()  # type: ignore[no-untyped-call]  # Airflow's has no types
        except Exception as error:  # noqa: BLE001  # whatever it is, it concerns one table
            refused.append(f"{path}: table {table.name}: {' '.join(str(error).split())}")
        else:
            dags.append(dag)
            built.append(table)
    return Built([*dags, maintain(built)], refused)
