"""A plan to be changed."""

from typing import Any

from firnlake.job.lane import Lane
from firnlake.job.plan import Input, Plan
from tests.support.lakes import NOW, TABLE


def example(**changes: Any) -> Plan:
    """A plan of one landed segment, with other facts where ``changes`` has some."""
    facts: dict[str, Any] = {
        "table": TABLE,
        "table_uuid": "2f6dbd3c",
        "snapshot_id": 2**62 + 1,
        "lane": Lane.FULL,
        "topic": "orders",
        "partition": 3,
        "now_ms": NOW,
        "reason": "dirty ratio 0.700 > 0.5",
        "inputs": (Input(path="file:/a", level=0, base_offset=1, last_offset=5, records=5, bytes=50),),
        "inputs_per_segment": None,
        "segment_bytes": 1000,
        "clean_below": None,
        "log_end_offset": 9,
        "delete_retention_ms": 0,
    }
    return Plan(**facts | changes).sealed()
