"""What the checker finds, and what is known of it."""

import re
import tomllib
from pathlib import Path
from typing import Final, NamedTuple

KNOWN: Final = Path(__file__).with_name("known.toml")


class Violation(NamedTuple):
    """A promise that was seen broken: its invariant (I1 to I6 of the trials), what in a few words, and the details."""

    invariant: str
    what: str
    """The same for all seeds that show the same defect: no path, no number."""
    details: str = ""

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}{': ' if self.details else ''}{self.details}"


class Known(NamedTuple):
    """A violation that a known defect explains, in seeds of some kinds."""

    invariant: str
    kinds: tuple[str, ...]
    what: str
    """A regular expression of all of the violation's ``what``."""
    why: str
    """What the defect is."""

    def explains(self, kind: str, violation: Violation) -> bool:
        fits = re.fullmatch(self.what, violation.what) is not None
        return fits and self.invariant == violation.invariant and kind in self.kinds


def known() -> list[Known]:
    """All that is listed in ``known.toml``."""
    listed = tomllib.loads(KNOWN.read_text(encoding="utf-8")).get("known", [])
    return [Known(**one | {"kinds": tuple(one["kinds"])}) for one in listed]


def explanation(listed: list[Known], kind: str, violation: Violation) -> Known | None:
    """The entry that explains a violation of a seed of ``kind``; None for one that nobody knows."""
    return next((one for one in listed if one.explains(kind, violation)), None)
