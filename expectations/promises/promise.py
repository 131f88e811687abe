"""The form of a promise: what it says of a plan, and the rules as SQL that are broken where it is not kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from expectations.wording import count

if TYPE_CHECKING:
    from expectations.claim import Claim

CLEANINGS = ("clean", "tier", "full")
EVERY_LANE = ("merge", *CLEANINGS)

MADE = {"merge": "the merged segments", "clean": "the cleaned run", "tier": "the new run", "full": "the new tail"}
"""What a lane's output is called in sentences."""

Figures = Mapping[str, int]
"""What was measured of a plan, by name (see `judge`)."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One way to break a promise.

    name        of the rule; no two have the same
    view        the view it looks at (see `views`), or `strangers` or `files`; None: it is judged when all was counted
    broken      SQL over a row of the view: how many break the rule in it, or whether it is broken; NULL is 0
    noun, one, many   of what breaks it, and what is said of one and of many of it
    found, expected   of a sample, filled with the columns of its row and what `told` adds to them
    """

    name: str
    view: str | None
    broken: str
    noun: str
    one: str
    many: str
    found: str = ""
    expected: str = ""

    def say(self, number: int) -> str:
        """`1 key has more than one record`, `2 keys have more than one record`."""
        # "record without a key" has its plural at its first word.
        head, *tail = re.split(r"(?= without| of)", self.noun, maxsplit=1)
        return f"{count(number, head)}{''.join(tail)} {self.one if number == 1 else self.many}"


@dataclass(frozen=True, slots=True)
class Promise:
    """What must hold of every plan of some lanes.

    number      of the contract
    name        under which results are stored
    lanes       in which it is made
    sentence    says it with the plan's figures
    kept        says what was found where it is kept
    checked     the figure that counts what was looked at
    rules       what breaks it; none: the record counts are compared (see `record_counts`)
    transactional   whether it is made only where control records may have been read
    """

    number: str
    name: str
    lanes: tuple[str, ...]
    sentence: Callable[[Claim], str]
    kept: Callable[[Figures, Claim], str]
    checked: str
    rules: tuple[Rule, ...] = ()
    transactional: bool = False

    def made_for(self, claim: Claim) -> bool:
        """Whether it is a promise about the plan of `claim`."""
        return claim.lane in self.lanes and (claim.transactional or not self.transactional)
