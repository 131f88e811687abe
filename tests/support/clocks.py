"""The machine's clock in tests, whose plans are made for times in the future."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import patch

LATE_MS = 253_402_300_800_000
"""The year 10,000."""


@contextmanager
def judging_late(at_ms: int = LATE_MS) -> Iterator[None]:
    """The judge's clock shows ``at_ms``, epoch milliseconds, in this process."""
    with patch("firnlake.validate.claims.clock", SimpleNamespace(now_ms=lambda: at_ms)):
        yield


@contextmanager
def machine_at(at_ms: int) -> Iterator[None]:
    """This process runs on a machine whose clock shows ``at_ms``, epoch milliseconds, and stands still."""
    with judging_late(at_ms), patch("firnlake.clock.now_ms", lambda: at_ms):
        yield
