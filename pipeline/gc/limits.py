"""Limits of age and size for what lies in Firn's home: settings of the machine, as the home serves many tables."""

import os
from dataclasses import dataclass

from pipeline.errors import RefusedError
from pipeline.policy.policy import DAY_MS, GIB, UNLIMITED
from pipeline.stage.leftovers import SETTLED_MS


@dataclass(frozen=True)
class Limits:
    """What is older than ``age_ms`` milliseconds goes, and the oldest while all together are more than ``bytes``."""

    setting: str
    """What the names of both settings begin with."""
    age_ms: int
    bytes: int

    @classmethod
    def of_plans(cls) -> "Limits":
        """Those of plan files."""
        return cls._of("FIRN_PLANS", DAY_MS, GIB)

    @classmethod
    def of_reports(cls) -> "Limits":
        """Those of data-quality reports."""
        return cls._of("FIRN_REPORTS", 90 * DAY_MS, 10 * GIB)

    @classmethod
    def _of(cls, setting: str, age_ms: int, size: int) -> "Limits":
        return cls(setting, _setting(f"{setting}_AGE_MS", age_ms), _setting(f"{setting}_BYTES", size))

    def exceeded(self, age_ms: int, total: int) -> str | None:
        """Why the oldest of some things goes, which is that old while all together are ``total`` bytes; None when it
        stays. What was written to just now goes for no size limit."""
        if self.age_ms != UNLIMITED and age_ms > self.age_ms:
            return f"older than {self.setting}_AGE_MS = {self.age_ms}"
        if self.bytes != UNLIMITED and total > self.bytes and age_ms > SETTLED_MS:
            return f"the oldest beyond {self.setting}_BYTES = {self.bytes}"
        return None


def _setting(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    if text == str(UNLIMITED) or (text.isascii() and text.isdigit()):
        return int(text)
    raise RefusedError(f"{name} is {text!r}; allowed: a whole number, 0 or more, or {UNLIMITED} for no limit")
