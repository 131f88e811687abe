"""The settings under which Airflow runs on one machine: for the demo, for `make up`, and for the tests.

All are Airflow's own environment variables. A real deployment has its own Airflow and needs of these only
the dags folder and the variables that say where the lake is, and a connection to its Spark.
"""

import os
from pathlib import Path

from firnlake.iceberg.catalog import Lake
from infra.environment import CHECKOUT, catalog_of

PORT = 8080
WRITER_WAITS = 60
"""Seconds that a component waits for SQLite's one writer. With five, the default, busy machines refuse requests."""


def environment(home: Path, port: int = PORT) -> dict[str, str]:
    """The whole environment of a local Airflow whose lake is the embedded one under `home`.

    The lake is pinned through PyIceberg's own variables, so that a catalog that the user has configured elsewhere is
    never touched by a demo or a test.
    """
    home = home.resolve()
    lake = Lake.embedded(home)
    own = {
        "FIRN_HOME": str(home),
        "PYICEBERG_DEFAULT_CATALOG": lake.name,
        "AIRFLOW_HOME": str(home / "airflow"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow/airflow.db?timeout={WRITER_WAITS}",
        "AIRFLOW__CORE__DAGS_FOLDER": str(CHECKOUT / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        # SQLite has one writer, and a small machine room for one Spark: more at a time is not faster.
        "AIRFLOW__CORE__PARALLELISM": "2",
        "AIRFLOW__API__HOST": "127.0.0.1",
        # A port of one's own takes all three.
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "PATH": f"{CHECKOUT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    foreign = ("AIRFLOW_", "PYICEBERG_", "SPARK_REMOTE")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return inherited | catalog_of(lake) | own
