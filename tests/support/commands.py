"""``firn`` on a test's lake: in the test's own process, or in another one, which a test may wait for or kill.

The steps of a run (`steps`) are taken in the same way.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from unittest.mock import patch

from firnlake.cli.main import main
from firnlake.iceberg.catalog import Lake
from infra.environment import CHECKOUT, environment
from tests.support import steps

PATIENCE_SECONDS = 120.0
LOOK_SECONDS = 0.01


class Ran(NamedTuple):
    """The exit code and the output of one command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The output, which must be one JSON document."""
        return json.loads(self.out)


Firn = Callable[..., Ran]
"""`command`, with or without some of its arguments."""


def command(*arguments: object, lake: Lake | None = None, variables: Mapping[str, str] | None = None) -> Ran:
    """Run ``firn`` in this process, on ``lake`` or the one that it finds, with ``variables`` of the environment."""
    chosen = variables or {}
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        patch.dict(os.environ, environment(lake, **chosen) if lake else chosen),
        patch.object(sys, "argv", ["firn", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            (steps.main if arguments and arguments[0] in steps.NAMES else main)()
        except SystemExit as left:
            code = int(left.code or 0)
    return Ran(code, out.getvalue(), err.getvalue())


def refused(ran: Ran, text: str, code: int = 1) -> None:
    """One line on standard error, nothing on standard output."""
    assert (ran.code, ran.out) == (code, ""), ran
    assert ran.err.startswith("firn: ")
    assert ran.err.count("\n") == 1, ran.err
    assert text in ran.err


def start(lake: Lake, *arguments: str, variables: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
    """Start ``firn`` with ``arguments`` in its own process group."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.steps" if arguments[0] in steps.NAMES else "firnlake", *arguments],
        env=environment(lake, **(variables or {})),
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def firn(lake: Lake, *arguments: str, variables: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """Run ``firn`` as a process to its end; its exit code and output are the caller's to look at."""
    with start(lake, *arguments, variables=variables) as process:
        out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def until(
    happened: Callable[[], object],
    within: float = PATIENCE_SECONDS,
    *,
    alive: Callable[[], bool] = lambda: True,
) -> bool:
    """Wait for another process: True once ``happened()``, False when what should do it is no longer ``alive``.

    Raises AssertionError when neither was so ``within`` seconds.
    """
    deadline = time.monotonic() + within
    while not happened():
        if not alive():
            return bool(happened())
        assert time.monotonic() < deadline, f"nothing happened within {within:.0f} s"
        time.sleep(LOOK_SECONDS)
    return True
