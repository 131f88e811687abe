"""A promise: its sentence and its rules as SQL; SQL for the required fate of newest records; what is told wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from firnlake_expectations.claim import Sample
from firnlake_expectations.wording import FATES, count, fate

if TYPE_CHECKING:
    from firnlake_expectations.claim import Claim


CLEANINGS = ("clean", "tier", "full")
CONVERT = "convert"
"""The lane that leaves the data files as they are, with other deletes."""
COPIES = ("erase", CONVERT, "merge")
"""Lanes after which every record that was visible, and is not to be erased, is there unchanged, repeated ones included.
"""
EVERY_LANE = (*COPIES, *CLEANINGS)
"""Every lane whose results are records or delete files."""

Figures = Mapping[str, int]
"""Figures measured for a plan, by name (see `judge`)."""


NOUNS: Mapping[str, str] = {
    "control_in": "control record",
    "dropped": "segment",
    "end_in": "log end",
    "files": "file",
    "keys_in": "key",
    "keys_out": "key",
    "records_in": "record",
    "records_out": "record",
    "staying": "segment",
    "told": "figure",
    "tombstones_in": "tombstone",
}
"""The noun for an item that is counted, by figure."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One way to break a promise.

    name        unique name of the rule
    view        the view it reads (see `views`), or `strangers` or `files`; None: it is judged after all counting
    broken      SQL over a row of the view: the number of violations in it, or true for one; NULL counts as one
    noun, breach      noun for an item that breaks it, and what is wrong with one or with several of them
    found           template for a sample, filled with the columns of its row and the values that `_told` adds
    """

    name: str
    view: str | None
    broken: str
    noun: str
    breach: str
    found: str = ""

    def say(self, number: int) -> str:
        """`1 key with more than one record`, `2 keys with more than one record`."""
        return f"{count(number, self.noun)} {self.breach}"


@dataclass(frozen=True, slots=True)
class Promise:
    """A statement that must hold for every plan of some lanes; Great Expectations checks it as an expectation.

    number      its number in the contract
    name        its name in stored results
    lanes       the lanes it applies to
    sentence    the statement
    checked     the figure that counts the items checked
    rules       the rules
    differences   if it has no rules: the differences between figures measured and figures told
    note        what else a reader should know about a plan, such as what can't be judged, and why; may be empty
    """

    number: str
    name: str
    lanes: tuple[str, ...]
    sentence: str
    checked: str
    rules: tuple[Rule, ...] = ()
    differences: Callable[[Figures, Claim], tuple[Sample, ...]] | None = None
    note: Callable[[Figures, Claim], str] | None = None


CLEAN = "(clean_below IS NULL OR in_max < clean_below)"
"""True when no segment outside the inputs can hold an older offset (C7)."""

ALONE = "(in_min = in_max)"
"""True when the newest record supersedes nothing: it must outlive, in a commit, the records it supersedes (C2)."""

_MAY_GO = f"(in_horizon IS NOT NULL AND in_horizon <= now AND {CLEAN} AND in_max < kept_from)"
_REMOVABLE = f"(in_tombstone AND {_MAY_GO} AND {ALONE})"
_MARKER_REMOVABLE = f"(ended AND {_MAY_GO})"
# If the retention is unknown, any new delete horizon is accepted, but its absence is not.
_STAMP = "coalesce(stamp, out_horizon, 0)"
_STAMPED = f"CASE WHEN in_horizon IS NOT NULL AND {ALONE} THEN in_horizon WHEN {CLEAN} THEN {_STAMP} END"

HORIZON = f"CASE WHEN CASE WHEN role = 'control' THEN ended ELSE in_tombstone END THEN {_STAMPED} END"
"""Delete horizon, epoch microseconds, that the record kept for a key, or a control record, must carry: that of a
tombstone or marker that stays (C8 to C10)."""

KEYED, COPIED, CONTROL, ABORTED = (f"role = '{role}'" for role in ("key", "copy", "control", "aborted"))
KNOWN = f"({KEYED} AND n_in > 0)"
"""True when records of the key were read."""

KEPT = f"({KNOWN} AND out_max IS NOT DISTINCT FROM in_max)"
"""True when the newest record of the key is in the topic."""

MAY = f"({KNOWN} AND {_REMOVABLE})"
"""True when the newest record read of a key is a tombstone that this commit may remove: an earlier commit stamped it,
its horizon has passed, it is clean again now, and it is not the log end (C9)."""

MARKER = f"({CONTROL} AND n_in > 0)"
MARKER_MAY = f"({MARKER} AND {_MARKER_REMOVABLE})"
"""True when a control record is a marker that this commit may remove: by the rules of a tombstone, and only if no
record of its transaction is read (C10)."""

ADDED = "greatest(n_out - least(n_in, 1), 0)"
"""Number of copies written in excess of the expected one."""


_COUNTED = {
    "records_in": "records read",
    "records_out": "records kept",
    **{name: words for name, words in FATES.items() if name != "expired"},
}

_OTHERS = {
    "repeated": "repeated records among the superseded",
    "restored": "restored tombstones among those read",
    "deleted": "records that other writers deleted, in addition to those read",
}
"""Figures that are not terms of the sum."""


def count_differences(measured: Figures, claim: Claim) -> tuple[Sample, ...]:
    """The differences between claimed and measured counts, and the equations of either that do not add up."""
    claimed = asdict(claim)
    wrong = [
        Sample(None, None, f"{measured[name]:,} {words} ({claimed[name]:,} claimed)")
        for name, words in (_COUNTED | _OTHERS).items()
        if measured[name] != claimed[name]
    ]
    wrong += [
        Sample(None, None, f"{equation(figures)} as {side} ({figures['records_in']:,} on both sides)")
        for side, figures in (("measured", measured), ("claimed", claimed))
        if figures["records_in"] != _explained(figures)
    ]
    return tuple(wrong)


def equation(figures: Figures) -> str:
    """`14 read = 9 kept + 3 superseded + 2 quarantined`."""
    sign = "=" if figures["records_in"] == _explained(figures) else "≠"
    # Of the terms that are 0, only what was read and kept is shown.
    shown = [(figures[name], words) for name, words in _COUNTED.items() if figures[name] or name.startswith("records_")]
    read, *terms = (f"{number:,} {fate(number, words)}" for number, words in shown)
    return f"{read} {sign} {' + '.join(terms)}"


def _explained(figures: Figures) -> int:
    return sum(figures[name] for name in _COUNTED if name != "records_in")


def figures_told_wrong(_: Figures, claim: Claim) -> tuple[Sample, ...]:
    """The figures of `claim` that are told otherwise than the judge has found them."""
    wrong = ((name, told, found) for name, told, found in claim.figures if told != found)
    return tuple(Sample(None, None, f"{name} {found} ({told} told)") for name, told, found in wrong)
