"""Runs the command inside the test's process, and keeps its output."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from firnlake.cli.main import main
from firnlake.iceberg.catalog import Lake
from infra.environment import environment


@dataclass(frozen=True)
class Ran:
    """The exit code and the output of one command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The output, which must be one JSON document."""
        return json.loads(self.out)


Firn = Callable[..., Ran]


def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Firn:
    """``firn`` in this process, on the lake that it finds."""

    def run(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["firn", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        printed = capsys.readouterr()
        return Ran(int(left.value.code or 0), printed.out, printed.err)

    return run


def command_on(lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Firn:
    """``firn`` in this process, on ``lake``."""
    for name, value in environment(lake).items():
        monkeypatch.setenv(name, value)
    return command(monkeypatch, capsys)


def refused(ran: Ran, text: str, code: int = 1) -> None:
    """One line on standard error, nothing on standard output."""
    assert (ran.code, ran.out) == (code, ""), ran
    assert ran.err.startswith("firn: ")
    assert ran.err.count("\n") == 1, ran.err
    assert text in ran.err
