"""A process that runs Firn and may die: forked, so that it has imported everything when it begins.

Where it works in Spark, the session is its parent's and outlives it, as a cluster outlives a driver; everything else of
it is gone at once.
"""

import json
import os
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from firnlake import clock
from firnlake.engine.engine import Engine
from firnlake.errors import FirnError
from firnlake.iceberg.catalog import Lake
from firnlake.job.lane import Lane
from firnlake.plan.read_states import EVERYTHING, Scope
from firnlake.run import run
from tests.support.clocks import judging_late

LONGEST = 1 << 16
"""Bytes of an account: what fits into a pipe that nobody reads yet."""
ENDS_WITHIN = 600
"""Seconds; a process that takes longer hangs, and so would whoever waits for it."""


@dataclass(frozen=True)
class Ended:
    """The end of a child: killed, or with its account; ``crashed`` is an error that no user must ever see."""

    killed: bool
    publications: int = 0
    retries: int = 0
    failures: list[str] = field(default_factory=list)
    """Plans that failed: kind of error, title, message."""
    refused: str | None = None
    """The error that ended the whole run."""
    publishing: list[tuple[int, float]] = field(default_factory=list)
    """Of each lane that published something: tries of its commits, and seconds that they took."""
    crashed: str | None = None


@dataclass
class Child:
    """A process that is under way."""

    pid: int
    pipe: int
    _status: int | None = None

    @classmethod
    def start(cls, work: Callable[[], dict[str, Any]]) -> "Child":
        """Fork, and do ``work`` there."""
        pipe, end = os.pipe()
        pid = os.fork()
        if pid:
            os.close(end)
            return cls(pid, pipe)
        os.close(pipe)
        # Nothing of the parent's must be cleaned up here: the child leaves without a word.
        try:
            account = work()
        except BaseException:  # noqa: BLE001  # whatever it is, the parent says so
            account = {"crashed": traceback.format_exc()[-LONGEST // 4 :]}
        os.write(end, json.dumps(account).encode()[:LONGEST])
        os._exit(0)

    def alive(self) -> bool:
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = status if pid else None
        return self._status is None

    def end(self) -> Ended:
        """Wait for its end; one that hangs is killed and has crashed."""
        until = time.monotonic() + ENDS_WITHIN
        while self.alive():
            if time.monotonic() > until:
                os.kill(self.pid, signal.SIGKILL)
                return Ended(killed=False, crashed=f"the process did not end within {ENDS_WITHIN} s")
            time.sleep(0.01)
        with os.fdopen(self.pipe, "rb") as pipe:
            said = pipe.read()
        if not said:
            return Ended(killed=True)
        return Ended(killed=False, **json.loads(said))


def clean(
    lake: Lake,
    table: str,
    engine: Callable[[], Engine],
    now_ms: int,
    lanes: Sequence[Lane] = tuple(Lane),
    *,
    ahead_ms: int = 0,
    force: bool = False,
    scope: Scope = EVERYTHING,
) -> dict[str, Any]:
    """`firn run` in a child, on a machine whose clock is ``ahead_ms`` ahead; the account for ``Ended``."""
    _set_clock(ahead_ms)
    own = engine()
    publications = retries = 0
    publishing = []
    failures: list[str] = []
    refused = None
    try:
        with judging_late():
            for done in run(lake, table, now_ms, lambda _: own, lanes, force, scope=scope):
                publications += len(done.publications)
                retries += sum(one.attempts - 1 for one in done.publications if one.attempts)
                if done.publications:
                    publishing.append((max(one.attempts for one in done.publications), done.seconds["publish"]))
                failures += [f"{type(error).__name__}: {title}: {error}" for title, error in done.failures.items()]
    except FirnError as error:
        refused = f"{type(error).__name__}: {error}"
    return {
        "publications": publications,
        "retries": retries,
        "failures": failures,
        "refused": refused,
        "publishing": publishing,
    }


def _set_clock(ahead_ms: int) -> None:
    machine = clock.now_ms
    setattr(clock, "now_ms", lambda: machine() + ahead_ms)  # noqa: B010  # this process is gone after the work
