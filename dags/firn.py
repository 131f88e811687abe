"""The DAGs: one per table of firn.toml, and `firn_maintain`, which maintains all of them.

`firnlake.airflow` builds them. Airflow parses this file again and again, so nothing imports Spark, Great Expectations
or PyIceberg outside a task. A table that is refused has no DAG; firn_refused.py beside this file says why.
"""

from pathlib import Path

from firnlake.airflow.dag.tables import build_all

globals().update({dag.dag_id: dag for dag in build_all(Path(__file__).parent).dags})
