"""Airflow: the DAGs of tables, their triggers, and Firn's pages in the UI. Everything else works without Airflow."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import DAG


def dags(file: str) -> "dict[str, DAG]":
    """The DAGs of ``file`` in Airflow's DAGs folder, by id: one per table, and `firn_maintain` for all tables.

    FIRN_TABLES names the file that lists the tables, by default ``firn.toml`` next to ``file``. A refused table has no
    DAG, and the log says why.
    """
    from firnlake.airflow.tables import build_file

    return {dag.dag_id: dag for dag in build_file(Path(file))}
