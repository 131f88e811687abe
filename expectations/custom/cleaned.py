"""Promises about a cleaning (lanes `clean`, `tier` and `full`): what it keeps, drops and may not touch."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from expectations.custom.base import STAYING, EvidenceExpectation
from expectations.wording import count, log_name, moment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from expectations.claim import Claim


class ExpectOneRecordPerKey(EvidenceExpectation):
    """Every key has exactly one record (C6, C14, C16). Without a claim: on any batch with a column `key`."""

    rules: ClassVar[tuple[str, ...]] = ("repeated_key", "left_superseded")
    rules_without_claim: ClassVar[tuple[str, ...]] = ("repeated_key",)

    @classmethod
    def promise(cls, claim: Claim) -> str:
        log = log_name(claim.topic, claim.partition)
        keys, records = count(claim.records_out, "key"), count(claim.records_out, "record")
        return (
            f"Every key of {log} has exactly one record in {STAYING[claim.lane]}: {keys}, {records}{_and_left(claim)}."
        )

    def found(self, figures: Mapping[str, int]) -> str:
        return f"{count(figures['keys_out'], 'key')}, {count(figures['records_out'], 'record')}."


class ExpectNoNullKeys(EvidenceExpectation):
    """No record without a key stays in the topic: all are quarantined, unchanged (C5). Without a claim: no
    record of any batch with a column `key` is without a key."""

    rules: ClassVar[tuple[str, ...]] = ("null_lost", "null_added", "null_visible")
    rules_without_claim: ClassVar[tuple[str, ...]] = ("null_key",)

    @classmethod
    def promise(cls, claim: Claim) -> str:
        log = log_name(claim.topic, claim.partition)
        if claim.quarantined == 0:
            return f"No record of {log} but its last may be without a key, so none is quarantined."
        records = count(claim.quarantined, "record")
        return f"No record without a key stays in {log} but its last: {records} quarantined, unchanged."

    def found(self, figures: Mapping[str, int]) -> str:
        quarantined = figures["quarantined"]
        if quarantined == 0:
            return "Every record has a key."
        return f"{count(quarantined, 'record')} without a key, quarantined and unchanged."


class ExpectNewestRecordKept(EvidenceExpectation):
    """The newest record of every key is kept, and nothing older (C1, C2, C3)."""

    rules: ClassVar[tuple[str, ...]] = ("lost", "stale")

    @classmethod
    def promise(cls, claim: Claim) -> str:
        return (
            f"Of {count(claim.records_in, 'record')} read, the newest of every key is kept, and none of "
            f"the {count(claim.superseded, 'record')} that a newer one supersedes."
        )

    def found(self, figures: Mapping[str, int]) -> str:
        return f"{count(figures['keys_in'], 'key')} read, {count(figures['superseded'], 'older record')} gone."


class ExpectTombstonesKept(EvidenceExpectation):
    """A tombstone stays until its delete horizon has passed and it is clean (C7, C8, C9)."""

    rules: ClassVar[tuple[str, ...]] = ("tombstone_lost",)

    @classmethod
    def promise(cls, claim: Claim) -> str:
        return (
            "Every tombstone that is the newest of its key is kept until its delete horizon has passed (the "
            f"plan's clock is {moment(claim.now_ms)}) and nothing older of its key can come back."
        )

    def found(self, figures: Mapping[str, int]) -> str:
        newest = count(figures["tombstones_in"], "key")
        return f"The newest record of {newest} is a tombstone; {figures['tombstones_out']:,} kept."


class ExpectTombstonesGone(EvidenceExpectation):
    """A tombstone past its delete horizon is gone, if it is clean and not the log end, and is kept beside the topic
    for records that turn up late (C9)."""

    rules: ClassVar[tuple[str, ...]] = ("tombstone_left", "unburied", "buried_alive", "left_due")

    @classmethod
    def promise(cls, claim: Claim) -> str:
        return (
            "Every tombstone past its delete horizon is gone, unless a segment outside the plan may hold an "
            f"older offset: {count(claim.tombstones_removed, 'tombstone')} removed."
        )

    def found(self, figures: Mapping[str, int]) -> str:
        return f"{count(figures['tombstones_removed'], 'tombstone')} removed."


class ExpectDeleteHorizons(EvidenceExpectation):
    """Tombstones carry the right delete horizon and nothing else carries one (C8, C9)."""

    rules: ClassVar[tuple[str, ...]] = ("horizon",)

    @classmethod
    def promise(cls, claim: Claim) -> str:
        stamp = moment(claim.now_ms + claim.delete_retention_ms)
        return (
            f"A tombstone found clean for the first time carries the delete horizon {stamp}; one that was "
            "stamped before keeps its own; no other record has one."
        )

    def found(self, figures: Mapping[str, int]) -> str:
        return f"Right on all {count(figures['tombstones_out'], 'tombstone')}, and on no other record."


class ExpectLogEndKept(EvidenceExpectation):
    """The record with the highest offset is never removed (C4)."""

    rules: ClassVar[tuple[str, ...]] = ("log_end", "past_end")

    @classmethod
    def promise(cls, claim: Claim) -> str:
        log = log_name(claim.topic, claim.partition)
        return f"The end of the log {log}, offset {claim.log_end_offset:,}, is kept if it is read."

    def found(self, figures: Mapping[str, int]) -> str:
        end = f"Offset {self.plan.log_end_offset:,}"
        return f"{end} was read and is kept." if figures["end_in"] else f"{end} is not among the records read."


class ExpectRecordsUnchanged(EvidenceExpectation):
    """What is kept is kept bit for bit, and nothing is there that was not read (C1)."""

    rules: ClassVar[tuple[str, ...]] = ("changed", "invented", "checksum")

    @classmethod
    def promise(cls, claim: Claim) -> str:
        return (
            f"All {count(claim.records_out, 'record')} kept have the offset, timestamp, headers, key and "
            "value they were read with, and nothing else is there."
        )

    def found(self, figures: Mapping[str, int]) -> str:
        return f"The newest records of {count(figures['keys_out'], 'key')} are as they were read; none is new."


class ExpectDistinctOffsets(EvidenceExpectation):
    """No offset holds two different records: which of them the log holds, nobody could say (C1)."""

    rules: ClassVar[tuple[str, ...]] = ("contradiction",)

    @classmethod
    def promise(cls, claim: Claim) -> str:
        return f"No offset of {log_name(claim.topic, claim.partition)} holds two different records."

    def found(self, figures: Mapping[str, int]) -> str:
        read, repeated = count(figures["records_in"], "record"), figures["repeated"]
        if repeated == 0:
            return f"{read} read, each with an offset of its own."
        return f"{read} read, {repeated:,} of them identical to another with the same offset."


def _and_left(claim: Claim) -> str:
    """What is said of segments that stay where they are."""
    if not claim.segments_left:
        return ""
    return f"; none of the {count(claim.records_left, 'record')} in segments left in place is of a key that was read"
