"""Run ``firn`` as a process of its own on a test's lake, with engine ``local`` unless told otherwise."""

import subprocess
import sys
from collections.abc import Mapping

from firnlake.iceberg.catalog import Lake
from infra.environment import CHECKOUT, environment


def start(lake: Lake, *arguments: str, variables: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
    """Start ``firn`` with ``arguments`` in its own process group."""
    return subprocess.Popen(
        [sys.executable, "-m", "firnlake", *arguments],
        env=environment(lake, **(variables or {})),
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def firn(lake: Lake, *arguments: str, variables: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """Run ``firn`` to its end; its exit code and output are the caller's to look at."""
    with start(lake, *arguments, variables=variables) as process:
        out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
