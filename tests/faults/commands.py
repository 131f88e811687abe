"""Run ``firn`` as a process of its own on a test's lake."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pipeline.lake import Lake
from tests.faults.harness.fault import Fault, Kind
from tests.faults.harness.faulty import properties_of

ROOT = Path(__file__).parents[2]


def environment(lake: Lake, **more: str) -> dict[str, str]:
    """The environment in which ``firn`` finds ``lake``, by PyIceberg's own configuration."""
    configured = {
        f"PYICEBERG_CATALOG__{lake.name.upper()}__{key.upper()}": lake.properties[key] for key in ("uri", "warehouse")
    }
    spark = {"FIRN_SPARK_MASTER": "local[2]", "FIRN_SHUFFLE_PARTITIONS": "2", "FIRN_HOME": str(lake.home)}
    return dict(os.environ) | configured | spark | {"PYTHONPATH": str(ROOT)} | more


def dying(folder: Path, when: str, call: str, nth: int) -> dict[str, str]:
    """The environment of a process that is killed "before" or "after" that call of its catalog; it says so in
    ``folder``."""
    found = properties_of(Fault(Kind.KILL, call, nth, when == "after"), folder)
    return {f"PYICEBERG_CATALOG__LAKE__{name.upper().replace('-', '_')}": value for name, value in found.items()}


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
