"""Custom expectations for Great Expectations on Spark: one class per promise of the contract."""

from expectations.custom.base import EvidenceExpectation
from expectations.custom.cleaned import (
    ExpectDeleteHorizons,
    ExpectDistinctOffsets,
    ExpectLogEndKept,
    ExpectNewestRecordKept,
    ExpectNoNullKeys,
    ExpectOneRecordPerKey,
    ExpectRecordsUnchanged,
    ExpectTombstonesGone,
    ExpectTombstonesKept,
)
from expectations.custom.every_lane import (
    ExpectAccountingToAddUp,
    ExpectOneTopicPartition,
    ExpectOutputLevel,
    ExpectSameRecords,
)
from expectations.custom.transactions import ExpectAbortedRecordsGone, ExpectMarkersKept

__all__ = [
    "EvidenceExpectation",
    "ExpectAbortedRecordsGone",
    "ExpectAccountingToAddUp",
    "ExpectDeleteHorizons",
    "ExpectDistinctOffsets",
    "ExpectLogEndKept",
    "ExpectMarkersKept",
    "ExpectNewestRecordKept",
    "ExpectNoNullKeys",
    "ExpectOneRecordPerKey",
    "ExpectOneTopicPartition",
    "ExpectOutputLevel",
    "ExpectRecordsUnchanged",
    "ExpectSameRecords",
    "ExpectTombstonesGone",
    "ExpectTombstonesKept",
]
