"""Runs the command inside the test's process, and keeps its output."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


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


def refused(ran: Ran, text: str, code: int = 1) -> None:
    """One line on standard error, nothing on standard output."""
    assert (ran.code, ran.out) == (code, ""), ran
    assert ran.err.startswith("firn: ")
    assert ran.err.count("\n") == 1, ran.err
    assert text in ran.err
