"""Run ``firn`` as a process of its own on a test's lake."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pipeline.lake import Lake

ROOT = Path(__file__).parents[2]


def environment(lake: Lake, **more: str) -> dict[str, str]:
    """The environment in which ``firn`` finds ``lake``, by PyIceberg's own configuration."""
    configured = {
        f"PYICEBERG_CATALOG__{lake.name.upper()}__{key.upper()}": lake.properties[key] for key in ("uri", "warehouse")
    }
    spark = {"FIRN_SPARK_MASTER": "local[2]", "FIRN_SHUFFLE_PARTITIONS": "2", "FIRN_HOME": str(lake.home)}
    return dict(os.environ) | configured | spark | {"PYTHONPATH": str(ROOT)} | more


def dying(moment: str) -> dict[str, str]:
    """What makes the process die at ``moment`` (see ``DyingCatalog``)."""
    return {
        "PYICEBERG_CATALOG__LAKE__PY_CATALOG_IMPL": "tests.faults.dying.DyingCatalog",
        "FIRN_TEST_DIE": moment,
    }


def start(lake: Lake, *arguments: str, variables: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
    """Start ``firn`` with ``arguments`` in its own process group."""
    return subprocess.Popen(
        [sys.executable, "-m", "pipeline", *arguments],
        env=environment(lake, **(variables or {})),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def firn(lake: Lake, *arguments: str, variables: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """Run ``firn`` to its end; its exit code and output are the caller's to look at."""
    process = start(lake, *arguments, variables=variables)
    out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
