"""Airflow: the DAGs of tables, what starts them, and the pages in its UI. Everything else works without Airflow."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import DAG


def dags(file: str) -> "dict[str, DAG]":
    """The DAGs of ``file`` in Airflow's DAGs folder, by id: one per table of FIRN_TABLES, by default ``firn.toml``
    beside ``file``, and `firn_maintain`, which maintains all of them. A refused table has none; the log says why.
    """
    from firnlake.airflow.dag.tables import build_all

    return {dag.dag_id: dag for dag in build_all(Path(file).parent).dags}
