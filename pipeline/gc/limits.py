"""Limits of age and size for what lies in Firn's home: settings of the machine, as the home serves many tables."""

import os
from dataclasses import dataclass

from pipeline.errors import RefusedError
from pipeline.policy.policy import DAY_MS, GIB, UNLIMITED


@dataclass(frozen=True)
class Limits:
    """What is older than ``age_ms`` milliseconds goes, and the oldest while all together are more than ``bytes``."""

    age_ms: int
    bytes: int

    @classmethod
    def of_plans(cls) -> "Limits":
        """Those of plan files."""
        return cls(_setting("FIRN_PLANS_AGE_MS", DAY_MS), _setting("FIRN_PLANS_BYTES", GIB))

    @classmethod
    def of_reports(cls) -> "Limits":
        """Those of data-quality reports."""
        return cls(_setting("FIRN_REPORTS_AGE_MS", 90 * DAY_MS), _setting("FIRN_REPORTS_BYTES", 10 * GIB))

    def too_old(self, age_ms: int) -> bool:
        """Whether something of this age goes."""
        return self.age_ms != UNLIMITED and age_ms > self.age_ms

    def too_large(self, total: int) -> bool:
        """Whether that is more than all together may have."""
        return self.bytes != UNLIMITED and total > self.bytes


def _setting(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    if text == str(UNLIMITED) or (text.isascii() and text.isdigit()):
        return int(text)
    raise RefusedError(f"{name} is {text!r}; allowed: a whole number, 0 or more, or {UNLIMITED} for no limit")
