"""How many random histories a test tries, and Hypothesis's settings for them.

Few are tried in a run of the suite, and always the same ones where a test says so; ``FIRN_EXAMPLES`` multiplies them
(``make histories``).
"""

import os
from collections.abc import Sequence
from typing import Final

from hypothesis import HealthCheck, Phase, settings

TIMES: Final = int(os.environ.get("FIRN_EXAMPLES", "1"))


def times(few: int) -> int:
    """``few`` examples in a run of the suite, more on request."""
    return few * TIMES


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
