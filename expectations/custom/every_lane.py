"""Promises about every lane, and the one of a merge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from expectations.custom.base import STAYING, EvidenceExpectation, met, unmet
from expectations.verdict import Sample
from expectations.wording import count, log_name, size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from expectations.claim import Claim
    from expectations.evidence import Evidence


class ExpectSameRecords(EvidenceExpectation):
    """A merge is a copy: the same multiset of records, duplicates and tombstones included (C13)."""

    rules: ClassVar[tuple[str, ...]] = ("lost_copy", "added_copy", "checksum")

    @classmethod
    def promise(cls, claim: Claim) -> str:
        return (
            f"The merged segments hold exactly the {count(claim.records_in, 'record')} read, with their "
            "offsets, timestamps, headers, keys, values and delete horizons."
        )

    def found(self, figures: Mapping[str, int]) -> str:
        repeats = figures["repeats_in"]
        twice = f", {count(repeats, 'repeated offset')} among them" if repeats else ""
        return f"{count(figures['records_out'], 'record')}, the same as were read{twice}."


class ExpectOutputLevel(EvidenceExpectation):
    """What stays in the topic is at the level that the plan names."""

    rules: ClassVar[tuple[str, ...]] = ("level",)

    @classmethod
    def promise(cls, claim: Claim) -> str:
        records = count(claim.records_out, "record")
        return f"All {records} of {STAYING[claim.lane]} are at level {claim.level_out}."

    def found(self, figures: Mapping[str, int]) -> str:
        return f"{count(figures['records_out'], 'record')} at level {self.plan.level_out}."


class ExpectOneTopicPartition(EvidenceExpectation):
    """Everything read or written is of the plan's topic partition."""

    rules: ClassVar[tuple[str, ...]] = ("foreign",)

    @classmethod
    def promise(cls, claim: Claim) -> str:
        return f"Every record read or written is of {log_name(claim.topic, claim.partition)}."

    def found(self, figures: Mapping[str, int]) -> str:
        log = log_name(self.plan.topic, self.plan.partition)
        return f"{count(figures['records_in'], 'record')} read, all of {log}."


class ExpectAccountingToAddUp(EvidenceExpectation):
    """Every claimed figure is what was measured, and records in = out + superseded + removed + quarantined + aborted
    (C24). Segments and bytes are facts of the plan, which it shows."""

    @classmethod
    def promise(cls, claim: Claim) -> str:
        return (
            f"The accounts add up: {count(claim.records_in, 'record')} read = {claim.records_out:,} kept + "
            f"{claim.superseded:,} superseded + {count(claim.tombstones_removed, 'tombstone')} removed + "
            f"{claim.quarantined:,} quarantined{_of_transactions(claim)}; {count(claim.segments_in, 'segment')} of "
            f"{size(claim.bytes_in)} became {claim.segments_out:,} of {size(claim.bytes_out)}{_left(claim)}."
        )

    def found(self, figures: Mapping[str, int]) -> str:
        return f"{_equation(figures)}."

    def judged(self, evidence: Evidence) -> dict[str, Any]:
        """Compares each claimed figure with the measured one, and adds both columns up."""
        measured, claimed = evidence.figures, self.plan.to_dict()
        wrong = [
            Sample(None, None, f"{measured[name]:,} {words}", f"{claimed[name]:,} claimed")
            for name, words in (_ACCOUNTS | _OF_WHICH).items()
            if measured[name] != claimed[name]
        ]
        wrong += [
            Sample(None, None, f"{_equation(figures)} as {side}", f"{figures['records_in']:,} on both sides")
            for side, figures in (("measured", measured), ("claimed", claimed))
            if figures["records_in"] != _explained(figures)
        ]
        if not wrong:
            return met(self.found(measured))
        differences = "; ".join(f"{sample.found} ({sample.expected})" for sample in wrong)
        return unmet(f"The accounts do not add up: {differences}.", wrong)


_ACCOUNTS = {
    "records_in": "records read",
    "records_out": "records kept",
    "superseded": "records superseded",
    "tombstones_removed": "tombstones removed",
    "quarantined": "records quarantined",
    "aborted": "records of aborted transactions",
    "markers_removed": "markers removed",
}
_ALWAYS = ("records_out", "superseded", "tombstones_removed", "quarantined")
"""Terms that are shown also when they are 0."""


_OF_WHICH = {"repeated": "repeated records among the superseded", "restored": "restored tombstones among those read"}


def _of_transactions(claim: Claim) -> str:
    if not claim.transactional:
        return ""
    return f" + {claim.aborted:,} of aborted transactions + {count(claim.markers_removed, 'marker')} removed"


def _left(claim: Claim) -> str:
    if not claim.segments_left:
        return ""
    return f"; {count(claim.segments_left, 'segment')} of {size(claim.bytes_left)} left in place"


def _explained(figures: Mapping[str, int]) -> int:
    return sum(figures[name] for name in _ACCOUNTS if name != "records_in")


def _equation(figures: Mapping[str, int]) -> str:
    sign = "=" if figures["records_in"] == _explained(figures) else "≠"
    shown = [name for name in _ACCOUNTS if name != "records_in" and (name in _ALWAYS or figures[name])]
    parts = " + ".join(f"{figures[name]:,}" for name in shown)
    return f"{figures['records_in']:,} {sign} {parts}"
