"""The DAGs: one per table of firn.toml, and `firn_maintain`, which maintains all of them.

`pipeline.airflow` builds them. Airflow parses this file again and again, so nothing imports Spark, Great Expectations
or PyIceberg outside a task.
"""

import os
from pathlib import Path

from pipeline.airflow.configuration import read_tables
from pipeline.airflow.dag.maintain import maintain
from pipeline.airflow.dag.table import build

tables = read_tables(Path(os.environ.get("FIRN_TABLES") or Path(__file__).with_name("firn.toml")))
watched = [table.name for table in tables if table.watched]
for one in tables:
    build(one, watched)
maintain(tables)
