"""How many random histories a test tries, and Hypothesis's settings for them.

At most MOST are tried in a run of the suite, and always the same ones where a test says so; ``FIRN_EXAMPLES`` says how
many times the number that a test names (``make histories``).
"""

import os
from collections.abc import Sequence
from typing import Final

from hypothesis import HealthCheck, Phase, settings

MOST: Final = 20
TIMES: Final = int(os.environ.get("FIRN_EXAMPLES", "0"))
"""Zero in a run of the suite."""


def times(few: int) -> int:
    """``few`` examples, or MOST if that is less, in a run of the suite; on request, a multiple of ``few``."""
    return few * TIMES or min(few, MOST)


def bounded(few: int, phases: Sequence[Phase] = tuple(Phase)) -> settings:
    """Settings for ``times(few)`` random histories, always the same ones, each in a table of its own."""
    return settings(
        max_examples=times(few),
        phases=phases,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
