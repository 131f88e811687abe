"""Limits of age and size. For what lies in Firn's home they are settings of the machine, as the home serves many
tables; for what lies beside a table they are its properties."""

import os
from dataclasses import dataclass

from pipeline.errors import RefusedError
from pipeline.policy.policy import DAY_MS, GIB, UNLIMITED
from pipeline.stage.leftovers import SETTLED_MS


@dataclass(frozen=True)
class Limits:
    """What is older than ``age_ms`` milliseconds goes, and the oldest while all together are more than ``bytes``."""

    age_setting: str
    """The name of the setting or property that says ``age_ms``."""
    age_ms: int
    bytes_setting: str
    """Likewise of ``bytes``."""
    bytes: int

    def __str__(self) -> str:
        return f"{self.age_setting} = {self.age_ms}, {self.bytes_setting} = {self.bytes}"

    @property
    def none(self) -> bool:
        """Whether nothing ever goes."""
        return self.age_ms == self.bytes == UNLIMITED

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
        age_setting, bytes_setting = f"{setting}_AGE_MS", f"{setting}_BYTES"
        return cls(age_setting, _setting(age_setting, age_ms), bytes_setting, _setting(bytes_setting, size))

    def exceeded(self, age_ms: int, total: int) -> str | None:
        """Why the oldest of some things goes, which is that old while all together are ``total`` bytes; None when it
        stays. What was written to just now goes for no size limit."""
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
