"""Raises an import error with a line for each table of firn.toml that is refused; defines no DAG.

This is a separate file because Airflow starts no DAG of a file that has an import error.
"""

from pathlib import Path

from firnlake.airflow.dag.tables import build_all

if refused := build_all(Path(__file__).parent).refused:
    raise ValueError("\n".join(refused))
