"""Explain why a record, a segment or a topic partition is as it is, by asking the code that decides (no JVM)."""

from pipeline.explain.history import Commit
from pipeline.explain.key import Kept, KeyExplanation, Removed, explain_key
from pipeline.explain.partition import PartitionExplanation, explain_partition
from pipeline.explain.reason import Reason
from pipeline.explain.segment import SegmentExplanation, explain_segment
from pipeline.explain.versions import Version, parse_key

__all__ = [
    "Commit", "Kept", "KeyExplanation", "PartitionExplanation", "Reason", "Removed", "SegmentExplanation", "Version",
    "explain_key", "explain_partition", "explain_segment", "parse_key",
]  # fmt: skip
