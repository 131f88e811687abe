"""Limits of age and size: what goes by them, at their very values."""

import pytest

from firnlake.job.stale import SETTLED_MS
from firnlake.maintain.reports import KeepLimits
from firnlake.table.policy import UNLIMITED

OLD = SETTLED_MS + 1


@pytest.mark.parametrize(
    ("age_limit", "bytes_limit", "age_ms", "total", "goes"),
    [
        (OLD, UNLIMITED, OLD, 10**9, None),
        (OLD, UNLIMITED, OLD + 1, 0, f"older than AGE = {OLD}"),
        (0, UNLIMITED, 1, 0, "older than AGE = 0"),
        (UNLIMITED, 10, OLD, 10, None),
        (UNLIMITED, 10, OLD, 11, "the oldest, beyond BYTES = 10"),
        (UNLIMITED, 0, OLD, 1, "the oldest, beyond BYTES = 0"),
        pytest.param(UNLIMITED, 10, SETTLED_MS, 11, None, id="it may be in use"),
        pytest.param(UNLIMITED, UNLIMITED, 10**15, 10**15, None, id="no limit"),
    ],
)
def test_what_is_past_a_limit_goes(age_limit: int, bytes_limit: int, age_ms: int, total: int, goes: str | None) -> None:
    assert KeepLimits("AGE", age_limit, "BYTES", bytes_limit).exceeded(age_ms, total) == goes
