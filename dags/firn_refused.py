"""Raises an import error that names each table of firn.toml that has no DAG, and why; defines no DAG.

This is a separate file because Airflow starts no DAG of a file that has an import error.
"""

from pathlib import Path

from firnlake.airflow.tables import refused_in

if refused := refused_in(Path(__file__).parent):
    raise ValueError("\n".join(refused))
