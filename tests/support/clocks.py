"""The machine's clock in tests, whose plans are made for times in the future."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from firnlake import clock

LATE_MS = 4_102_444_800_000
"""The year 2100."""
_LATEST = clock.latest_ms


@contextmanager
def judging_late(at_ms: int = LATE_MS) -> Iterator[None]:
    """Plans of times until an hour after ``at_ms``, epoch milliseconds, are carried out in this process."""
    with patch.object(clock, "latest_ms", lambda: at_ms + clock.AHEAD_MS):
        yield


@contextmanager
def machine_at(at_ms: int) -> Iterator[None]:
    """This process runs on a machine whose clock shows ``at_ms``, epoch milliseconds, and stands still."""
    with patch.object(clock, "latest_ms", _LATEST), patch.object(clock, "now_ms", lambda: at_ms):
        yield
