"""The expectation suite of each lane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from great_expectations import ExpectationSuite

from expectations.custom import (
    EvidenceExpectation,
    ExpectAbortedRecordsGone,
    ExpectAccountingToAddUp,
    ExpectDeleteHorizons,
    ExpectDistinctOffsets,
    ExpectLogEndKept,
    ExpectMarkersKept,
    ExpectNewestRecordKept,
    ExpectNoNullKeys,
    ExpectOneRecordPerKey,
    ExpectOneTopicPartition,
    ExpectOutputLevel,
    ExpectRecordsUnchanged,
    ExpectSameRecords,
    ExpectTombstonesGone,
    ExpectTombstonesKept,
)

if TYPE_CHECKING:
    from expectations.claim import Claim

_CLEANED: tuple[type[EvidenceExpectation], ...] = (
    ExpectOneRecordPerKey,
    ExpectNewestRecordKept,
    ExpectTombstonesKept,
    ExpectTombstonesGone,
    ExpectDeleteHorizons,
    ExpectLogEndKept,
    ExpectRecordsUnchanged,
    ExpectNoNullKeys,
    ExpectAbortedRecordsGone,
    ExpectMarkersKept,
    ExpectOutputLevel,
    ExpectDistinctOffsets,
    ExpectOneTopicPartition,
    ExpectAccountingToAddUp,
)

PROMISES: dict[str, tuple[type[EvidenceExpectation], ...]] = {
    "merge": (ExpectSameRecords, ExpectOutputLevel, ExpectOneTopicPartition, ExpectAccountingToAddUp),
    "clean": _CLEANED,
    "full": _CLEANED,
}
"""What each lane promises, in the order in which it is read."""


def suite_for(claim: Claim, *, samples: Literal["none", "keys"] = "keys") -> ExpectationSuite:
    """The suite of the claim's lane, its sentences filled with the claim's figures.

    To be run on a batch made by `comparison(inputs, outputs)`.
    """
    fields = claim.to_dict()
    return ExpectationSuite(
        name=f"firn-{claim.lane}",
        expectations=[
            promise(claim=fields, samples=samples, description=promise.promise(claim))
            for promise in PROMISES[claim.lane]
            if claim.transactional or promise is not ExpectMarkersKept
        ],
    )
