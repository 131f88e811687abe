"""The expectation suite of each lane."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    from expectations.shown import Shown

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
    ExpectOutputLevel,
    ExpectDistinctOffsets,
    ExpectOneTopicPartition,
    ExpectAccountingToAddUp,
)

PROMISES: dict[str, tuple[type[EvidenceExpectation], ...]] = {
    "merge": (ExpectSameRecords, ExpectOutputLevel, ExpectOneTopicPartition, ExpectAccountingToAddUp),
    "clean": _CLEANED,
    "tier": _CLEANED,
    "full": _CLEANED,
}
"""What each lane promises, in the order in which it is read."""

OF_TRANSACTIONS = (ExpectMarkersKept,)
"""What a cleaning promises besides where control records may have been read (C10)."""


def suite_for(claim: Claim, *, samples: Shown = "keys") -> ExpectationSuite:
    """The suite of the claim's lane, its sentences filled with the claim's figures.

    To be run on a batch made by `comparison(inputs, outputs)`.
    """
    said = claim.to_json()
    promises = PROMISES[claim.lane] + (OF_TRANSACTIONS if claim.transactional else ())
    return ExpectationSuite(
        name=f"firn-{claim.lane}",
        expectations=[promise(claim=said, samples=samples, description=promise.promise(claim)) for promise in promises],
    )
