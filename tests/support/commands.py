"""Run ``firn`` as a process of its own on a test's lake, with engine ``local`` unless told otherwise."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from pipeline.lake import Lake
from tests.support import prepared

ROOT = Path(__file__).parents[2]


FOREIGN = ("FIRN_JARS", "SPARK_DIST_CLASSPATH")
"""Iceberg in a foreign Spark: ``firn`` needs none of it."""


def environment(lake: Lake, **more: str) -> dict[str, str]:
    """The environment in which ``firn`` finds ``lake``, by PyIceberg's own configuration."""
    inherited = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    configured = {
        f"PYICEBERG_CATALOG__{lake.name.upper()}__{key.upper()}": lake.properties[key] for key in ("uri", "warehouse")
    }
    own = {"FIRN_ENGINE": "local", "FIRN_SPARK_MASTER": "local[2]", "FIRN_HOME": str(lake.home)}
    return inherited | configured | own | {"PYTHONPATH": str(ROOT)} | more


def start(lake: Lake, *arguments: str, variables: Mapping[str, str] | None = None) -> prepared.Prepared:
    """Start ``firn`` with ``arguments`` in its own process group."""
    return prepared.start(arguments, environment(lake, **(variables or {})), ROOT)


def firn(lake: Lake, *arguments: str, variables: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """Run ``firn`` to its end; its exit code and output are the caller's to look at."""
    process = start(lake, *arguments, variables=variables)
    out, err = process.communicate(timeout=300)
    assert process.returncode is not None
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
