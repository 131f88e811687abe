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

__all__ = [
    "EvidenceExpectation",
    "ExpectAccountingToAddUp",
    "ExpectDeleteHorizons",
    "ExpectDistinctOffsets",
    "ExpectLogEndKept",
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
