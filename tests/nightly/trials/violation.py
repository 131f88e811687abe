"""What the checker finds, and what is known of it."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

KNOWN: Final = Path(__file__).with_name("known.toml")


class Violation(NamedTuple):
    """A promise that was seen broken: its invariant (I1 to I7 of the trials), what in a few words, and the details."""

    invariant: str
    what: str
    """The same for all seeds that show the same defect: no path, no number."""
    details: str = ""

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}{': ' if self.details else ''}{self.details}"


@dataclass(frozen=True)
class Known:
    """A violation that a finding explains."""

    finding: str
    invariant: str
    kind: str
    what: str
    """A regular expression of all of the violation's ``what``."""
    why: str = ""
    """What it is, where no finding has a number for it."""

    @property
    def defect(self) -> tuple[str, str]:
        """What several entries may show in several ways: the finding in seeds of one kind, or what has no number."""
        return self.finding, self.why or self.kind

    @property
    def title(self) -> str:
        return f"{self.finding} ({self.kind}, {self.invariant}, {self.why or self.what})"

    def explains(self, kind: str, violation: Violation) -> bool:
        return (
            self.invariant == violation.invariant
            and self.kind == kind
            and re.fullmatch(self.what, violation.what) is not None
        )


def known() -> list[Known]:
    """All that is listed in ``known.toml``."""
    return [Known(**one) for one in tomllib.loads(KNOWN.read_text(encoding="utf-8")).get("known", [])]


def explanation(listed: list[Known], kind: str, violation: Violation) -> Known | None:
    """The entry that explains a violation of a seed of ``kind``; None for one that nobody knows."""
    return next((one for one in listed if one.explains(kind, violation)), None)
