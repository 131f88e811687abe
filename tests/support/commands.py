"""Run ``firn`` as a process of its own on a test's lake, with engine ``local`` unless told otherwise."""

import subprocess
from collections.abc import Mapping

from firnlake.iceberg.catalog import Lake
from infra.environment import CHECKOUT, environment
from tests.support import prepared


def start(lake: Lake, *arguments: str, variables: Mapping[str, str] | None = None) -> prepared.Prepared:
    """Start ``firn`` with ``arguments`` in its own process group."""
    return prepared.start(arguments, environment(lake, **(variables or {})), CHECKOUT)


def firn(lake: Lake, *arguments: str, variables: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """Run ``firn`` to its end; its exit code and output are the caller's to look at."""
    process = start(lake, *arguments, variables=variables)
    out, err = process.communicate(timeout=300)
    assert process.returncode is not None
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
