"""Wait until something happens in another process: bounded, and never longer than it takes."""

import time
from collections.abc import Callable

PATIENCE_SECONDS = 120.0
LOOK_SECONDS = 0.01


def until(
    happened: Callable[[], object],
    within: float = PATIENCE_SECONDS,
    *,
    alive: Callable[[], bool] = lambda: True,
    pause: Callable[[float], object] = time.sleep,
) -> bool:
    """Return True once ``happened()``, False when what should do it is no longer ``alive``.

    Raises AssertionError when neither was so ``within`` seconds.
    """
    deadline = time.monotonic() + within
    while not happened():
        if not alive():
            return bool(happened())
        assert time.monotonic() < deadline, f"nothing happened within {within:.0f} s"
        pause(LOOK_SECONDS)
    return True
