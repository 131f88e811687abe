"""Promises about topics of transactional producers (C10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from expectations.custom.base import EvidenceExpectation
from expectations.wording import count, log_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from expectations.claim import Claim


class ExpectAbortedRecordsGone(EvidenceExpectation):
    """No record of an aborted transaction is left, and none was read of which nobody knows (C10)."""

    rules: ClassVar[tuple[str, ...]] = ("aborted_left", "undecided", "untold")

    @classmethod
    def promise(cls, claim: Claim) -> str:
        log = log_name(claim.topic, claim.partition)
        if not claim.transactional:
            return f"No record read of {log} is part of a transaction, so none was aborted."
        return (
            f"Every transaction read of {log} has ended, and no record of an aborted one is left: "
            f"{count(claim.aborted, 'record')} gone, whatever the key."
        )

    def found(self, figures: Mapping[str, int]) -> str:
        if not self.plan.transactional:
            return "No transactional record."
        return f"{count(figures['aborted'], 'record')} of aborted transactions gone, none left."


class ExpectMarkersKept(EvidenceExpectation):
    """A marker goes in two stages like a tombstone, once no record of its transaction is left; other control records
    stay, and none supersedes or is superseded (C10)."""

    rules: ClassVar[tuple[str, ...]] = ("marker_lost", "marker_left", "control_added")

    @classmethod
    def promise(cls, claim: Claim) -> str:
        return (
            "Every control record stays as it is, until no record of its transaction is left and its delete horizon "
            f"has passed: {count(claim.markers_removed, 'marker')} removed."
        )

    def found(self, figures: Mapping[str, int]) -> str:
        return f"{count(figures['control_in'], 'control record')} read, {figures['markers_removed']:,} removed."
