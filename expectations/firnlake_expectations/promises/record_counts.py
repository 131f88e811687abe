"""The record counts of a plan (C24): every claimed figure equals the measured one, and records in = out + superseded +
removed + quarantined + aborted + erased. Segments and bytes are shown as the plan states them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from firnlake_expectations.claim import Sample

if TYPE_CHECKING:
    from firnlake_expectations.claim import Claim
    from firnlake_expectations.promises.promise import Figures


_COUNTED = {
    "records_in": "records read",
    "records_out": "records kept",
    "superseded": "records superseded",
    "tombstones_removed": "tombstones removed",
    "quarantined": "records quarantined",
    "aborted": "records of aborted transactions",
    "markers_removed": "markers removed",
    "erased": "records erased",
}
_ALWAYS = ("records_out", "superseded", "tombstones_removed", "quarantined")
"""Terms that are shown even when they are 0."""

_OTHERS = {
    "repeated": "repeated records among the superseded",
    "restored": "restored tombstones among those read",
    "deleted": "records that other writers deleted, in addition to those read",
}
"""Figures that are not terms of the sum."""


def differences(measured: Figures, claim: Claim) -> tuple[Sample, ...]:
    """The differences between claimed and measured counts, and the equations of either that do not add up."""
    claimed = claim.to_dict()
    wrong = [
        Sample(None, None, f"{measured[name]:,} {words}", f"{claimed[name]:,} claimed")
        for name, words in (_COUNTED | _OTHERS).items()
        if measured[name] != claimed[name]
    ]
    wrong += [
        Sample(None, None, f"{equation(figures)} as {side}", f"{figures['records_in']:,} on both sides")
        for side, figures in (("measured", measured), ("claimed", claimed))
        if figures["records_in"] != _explained(figures)
    ]
    return tuple(wrong)


def equation(figures: Figures) -> str:
    """`14 = 9 + 3 + 1 + 1`."""
    sign = "=" if figures["records_in"] == _explained(figures) else "≠"
    shown = [name for name in _COUNTED if name != "records_in" and (name in _ALWAYS or figures[name])]
    return f"{figures['records_in']:,} {sign} {' + '.join(f'{figures[name]:,}' for name in shown)}"


def _explained(figures: Figures) -> int:
    return sum(figures[name] for name in _COUNTED if name != "records_in")
