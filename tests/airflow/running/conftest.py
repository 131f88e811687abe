"""One Airflow, with all of its components running, for the tests of this folder: each has tables of its own in it."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.airflow.conftest import LocalAirflow, make
from tests.airflow.running import tables
from tests.airflow.server import Server, serving

NOTIFIER = """
from pathlib import Path
from airflow.sdk import BaseNotifier

class FileNotifier(BaseNotifier):
    template_fields = ("text",)

    def __init__(self, path, text):
        super().__init__()
        self.path, self.text = path, text

    def notify(self, context):
        Path(self.path).write_text(self.text)
"""

DAGS = """
import os
from uuid import uuid4

os.environ["FIRN_HOME"] = f"{os.environ['WORKERS']}/{uuid4().hex}"

from firnlake.airflow import dags

globals().update(dags(__file__))
"""
"""A file of DAGs that gives each process which reads it a home of its own: each task then runs on a worker that shares
no folder with those before it, nor with the API server (C22, C25)."""


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory, migrated: Path) -> Iterator[LocalAirflow]:
    """An Airflow with the tables of `tables.py`, a connection to a master that never answers, and a notifier."""
    home = tmp_path_factory.mktemp("running")
    # As an installation's own notifiers: where Airflow finds them.
    plugins = home / "airflow" / "plugins"
    plugins.mkdir(parents=True)
    (plugins / "notice.py").write_text(NOTIFIER)
    folder = home / "dags"
    folder.mkdir()
    (folder / "firn.py").write_text(DAGS)
    made = make(home, tables.lines(home), migrated)
    made.environment.update({"AIRFLOW__CORE__DAGS_FOLDER": str(folder), "WORKERS": str(home / "workers")})
    with socket.create_server(("127.0.0.1", 0)) as silent:
        master = {"conn_type": "spark", "host": "spark://127.0.0.1", "port": silent.getsockname()[1]}
        made.environment["AIRFLOW_CONN_SPARK_DOWN"] = json.dumps(master)
        yield made


@pytest.fixture(scope="session")
def server(airflow: LocalAirflow) -> Iterator[Server]:
    """All components of that Airflow."""
    with serving(airflow) as running:
        yield running
