"""The figures of claims as columns beside the records they are about.

As literals they would be part of the code that Spark generates, which would be compiled anew for every plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from expectations.claim import Claim

_SCHEMA = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int64(),
        "plan": pa.int32(),  # its place among the claims
        "now": pa.int64(),  # times are epoch microseconds, as Spark compares them
        "stamp": pa.int64(),  # the delete horizon of a tombstone that this cleaning is the first to find clean (C8)
        "clean_below": pa.int64(),
        "log_end": pa.int64(),
        "told": pa.bool_(),  # whether the claim tells of transactions
    }
)


def with_figures(records: DataFrame, claims: Sequence[Claim], *names: str) -> DataFrame:
    """`records`, which have columns topic and partition, and the figures called `names` of the claim about them.

    All of them are NULL where there is no claim about a topic partition. The claims are of distinct topic partitions.
    """
    rows = [
        {
            "topic": claim.topic,
            "partition": claim.partition,
            "plan": number,
            "now": claim.now_ms * 1000,
            "stamp": (claim.now_ms + claim.delete_retention_ms) * 1000,
            "clean_below": claim.clean_below,
            "log_end": claim.log_end_offset,
            "told": claim.transactional,
        }
        for number, claim in enumerate(claims)
    ]
    figures = records.sparkSession.createDataFrame(pa.Table.from_pylist(rows, _SCHEMA))
    return records.join(F.broadcast(figures.select("topic", "partition", *names)), ["topic", "partition"], "left")
