"""The variables by which ``firn``, a process of its own, finds a lake: PyIceberg's own configuration."""

import os
from pathlib import Path

from firnlake.iceberg.catalog import Lake

CHECKOUT = Path(__file__).resolve().parents[1]
SOURCES = os.pathsep.join(str(CHECKOUT / folder) for folder in ("pipeline", "expectations", "."))
"""The PYTHONPATH of a checkout that is not installed."""
FOREIGN = ("FIRN_JARS", "SPARK_DIST_CLASSPATH")
"""Iceberg in a foreign Spark: ``firn`` needs none of it."""


def variable(catalog: str, key: str) -> str:
    """The variable in which PyIceberg looks for a property of a catalog."""
    return f"PYICEBERG_CATALOG__{catalog}__{key.replace('.', '__').replace('-', '_')}".upper()


def catalog_of(lake: Lake) -> dict[str, str]:
    """The properties of the lake's catalog."""
    return {variable(lake.name, key): value for key, value in lake.properties.items()}


def environment(lake: Lake, **more: str) -> dict[str, str]:
    """The whole environment of a ``firn`` on ``lake``, with engine ``local`` unless ``more`` says otherwise."""
    inherited = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    own = {"FIRN_ENGINE": "local", "FIRN_SPARK_MASTER": "local[2]", "FIRN_HOME": str(lake.home)}
    # Not its type: who puts another catalog in its place names a class, and PyIceberg takes one of both.
    configured = {variable(lake.name, key): lake.properties[key] for key in ("uri", "warehouse")}
    return inherited | configured | own | {"PYTHONPATH": SOURCES} | more
