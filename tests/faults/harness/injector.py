"""Counts the calls of this process to its catalog and store, and fails the one that a fault names."""

import errno
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from pyiceberg.exceptions import CommitFailedException
from sqlalchemy.exc import OperationalError

from tests.faults.harness.fault import CATALOG, Fault, Kind

FAULT, FOLDER = "fault", "fault-folder"
"""Properties of a catalog: the fault as JSON, and the folder in which its process says that it came to it."""
FIRED, PAUSED, GO = "fired", "paused", "go"
"""Files of that folder; the last one ends a pause."""
SLOW_SECONDS = 0.3
PAUSED_AT_MOST = 600  # seconds; an intruder may have to start Spark on a busy machine


class Injector:
    """Fails a call as ``fault`` says; counts all of them by name."""

    def __init__(self, fault: Fault, folder: Path) -> None:
        self.fault = fault
        self.calls: Counter[str] = Counter()
        self._folder = folder
        self._failing = 0
        """Number of calls that fail after the first one."""
        self._lock = threading.Lock()

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Around a call, which is carried out within."""
        hit = self.hits(name)
        if hit and not self.fault.after:
            self._fail()
        yield
        if hit and self.fault.kind is Kind.LOST_ANSWER:
            self._break()
        if hit and self.fault.after:
            os.kill(os.getpid(), signal.SIGKILL)

    def cut(self) -> None:
        """The fate of the process when half of that file is written."""
        if self.fault.kind is Kind.TORN:
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(errno.ENOSPC, "no space left on device")

    def hits(self, name: str) -> bool:
        """Count a call; whether it is one that fails."""
        fault = self.fault
        with self._lock:
            self.calls[name] += 1
            if name == fault.call and self.calls[name] == fault.nth:
                (self._folder / FIRED).write_text(str(fault))
                self._failing = fault.length - 1
                return True
            # An outage is one for every call, a lost race for those of its kind.
            concerned = name in CATALOG if fault.kind in (Kind.DOWN, Kind.BUSY) else name == fault.call
            lasts = fault.lasts and concerned and self._failing > 0
            self._failing -= lasts
            return lasts

    def _fail(self) -> None:
        match self.fault.kind:
            case Kind.KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            case Kind.LOST_REQUEST:
                self._break()
            case Kind.DOWN:
                raise ConnectionError("the catalog is down")
            case Kind.BUSY:
                raise OperationalError("BEGIN IMMEDIATE", None, Exception("database is locked"))
            case Kind.CONFLICT:
                raise CommitFailedException("another commit was faster")
            case Kind.BROKEN_STORE:
                raise OSError(errno.EIO, "the store answered 503")
            case Kind.SLOW:
                time.sleep(SLOW_SECONDS)
            case Kind.PAUSE:
                self._pause()

    def _break(self) -> None:
        """As a REST catalog's client says it, or a SQL catalog's."""
        broken = ConnectionError("the connection broke")
        if self.fault.nth % 2:
            raise OperationalError("COMMIT", None, broken, connection_invalidated=True)
        raise broken

    def _pause(self) -> None:
        (self._folder / PAUSED).touch()
        deadline = time.monotonic() + PAUSED_AT_MOST
        while not (self._folder / GO).exists():
            if time.monotonic() > deadline:
                raise TimeoutError("nobody said go")
            time.sleep(0.01)


def injector(properties: Mapping[str, str]) -> Injector:
    """The one of this process for these catalog properties."""
    return _injector(properties[FAULT], properties[FOLDER])


@lru_cache
def _injector(fault: str, folder: str) -> Injector:
    return Injector(Fault.read(fault), Path(folder))
