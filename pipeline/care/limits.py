"""Limits of age and size, for Firn's home and for tables.

Limits for Firn's home are settings of the machine, as the home serves many tables; limits for files beside a table are
its properties.
"""

import os
from dataclasses import dataclass
from typing import Final

from pipeline.errors import RefusedError
from pipeline.policy.policy import DAY_MS, GIB, UNLIMITED

SETTLED_MS: Final = 3_600_000
"""Time since the last write, in milliseconds, within which something may be in use and goes for no size limit."""


@dataclass(frozen=True)
class KeepLimits:
    """Limits: anything older than ``age_ms`` milliseconds goes, and the oldest while the total exceeds ``bytes``."""

    age_setting: str
    """Name of the setting or property for ``age_ms``."""
    age_ms: int
    bytes_setting: str
    """Name of the setting or property for ``bytes``."""
    bytes: int

    def __str__(self) -> str:
        return f"{self.age_setting} = {self.age_ms}, {self.bytes_setting} = {self.bytes}"

    @property
    def none(self) -> bool:
        """True when nothing ever goes."""
        return self.age_ms == self.bytes == UNLIMITED

    @classmethod
    def of_plans(cls) -> "KeepLimits":
        """Limits for plan files."""
        return cls._of("FIRN_PLANS", DAY_MS, GIB)

    @classmethod
    def of_reports(cls) -> "KeepLimits":
        """Limits for data-quality reports."""
        return cls._of("FIRN_REPORTS", 90 * DAY_MS, 10 * GIB)

    @classmethod
    def _of(cls, setting: str, age_ms: int, size: int) -> "KeepLimits":
        age_setting, bytes_setting = f"{setting}_AGE_MS", f"{setting}_BYTES"
        return cls(age_setting, _setting(age_setting, age_ms), bytes_setting, _setting(bytes_setting, size))

    def exceeded(self, age_ms: int, total: int) -> str | None:
        """The reason why the oldest item goes, at age ``age_ms`` and ``total`` bytes of all items; None when it stays.

        No size limit applies to recently written items.
        """
        if self.age_ms != UNLIMITED and age_ms > self.age_ms:
            return f"older than {self.age_setting} = {self.age_ms}"
        if self.bytes != UNLIMITED and total > self.bytes and age_ms > SETTLED_MS:
            return f"the oldest beyond {self.bytes_setting} = {self.bytes}"
        return None


def _setting(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    if text == str(UNLIMITED) or (text.isascii() and text.isdigit()):
        return int(text)
    raise RefusedError(f"{name} is {text!r}; allowed: a whole number, 0 or more, or {UNLIMITED} for no limit")
