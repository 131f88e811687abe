"""What the records that were read say of transactions: which were aborted, which are undecided, which markers have
nothing left of their transaction (C10).

Derived from the contract alone: the records of a producer up to and with its next marker are one transaction. Each
transaction is numbered by the markers before it and judged as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from expectations.claim import BURIED, READ

if TYPE_CHECKING:
    from collections.abc import Collection

    from expectations.claim import Claim

MARKS = ("aborted", "undecided", "ended")
_COMMIT, _ABORT = "0001", "0000"
"""Type of a control record: bytes 3 and 4 of its key (Kafka's ControlRecordType)."""


def attributes(columns: Collection[str]) -> dict[str, Column]:
    """`control`, `transactional` and `producer` of each record; where there are no such columns it has none."""
    return {
        "control": _flag(columns, "is_control"),
        "transactional": _flag(columns, "is_transactional"),
        "producer": F.col("producer_id") if "producer_id" in columns else F.lit(None).cast("bigint"),
    }


def _flag(columns: Collection[str], name: str) -> Column:
    return F.coalesce(name, F.lit(False)) if name in columns else F.lit(False)


def with_marks(compared: DataFrame, claim: Claim) -> DataFrame:
    """A comparison with the MARKS on both sides: what was read at an offset decides of what was written there."""
    no = F.lit(False)
    if not claim.transactional:
        return compared.withColumns(dict.fromkeys(MARKS, no))
    in_topic = F.col("level") != BURIED
    judged = compared.join(_transactions(compared, claim), on="offset", how="left")
    return judged.withColumns({name: in_topic & F.coalesce(name, no) for name in MARKS})


def _transactions(compared: DataFrame, claim: Claim) -> DataFrame:
    """The MARKS of the offsets that have one."""
    kind = F.when(F.col("control"), F.hex(F.substring("key", 3, 2)))
    inside = compared.where(
        (F.col("side") == READ) & (F.col("level") != BURIED) & (F.col("control") | F.col("transactional"))
    ).select(
        "producer",
        "offset",
        F.when(kind == _COMMIT, F.lit(True)).when(kind == _ABORT, F.lit(False)).alias("commit"),
        (~F.col("control")).alias("data"),
        # What a cleaning has kept, it has judged: levels 2 and 3 hold committed records.
        (~F.col("control") & (F.col("level") < 2)).alias("open"),
    )
    outside = compared.sparkSession.createDataFrame(
        [(*marker, False, False) for marker in claim.markers],
        "producer bigint, offset bigint, commit boolean, data boolean, open boolean",
    )
    # Copies of one record are one, whichever segments they were read from.
    events = (
        inside.unionByName(outside).groupBy("producer", "offset", "commit", "data").agg(F.min("open").alias("open"))
    )
    before = Window.partitionBy("producer").orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    whole = Window.partitionBy("producer", "number")
    judged = events.withColumn("number", F.count("commit").over(before)).select(
        "offset",
        "commit",
        "open",
        F.max("commit").over(whole).alias("end"),
        F.max("data").over(whole).alias("any_data"),
    )
    return (
        judged.groupBy("offset")
        .agg(
            F.max(F.col("open") & F.coalesce(~F.col("end"), F.lit(False))).alias("aborted"),
            F.max(F.col("open") & F.col("end").isNull()).alias("undecided"),
            F.max(F.col("commit").isNotNull() & ~F.col("any_data")).alias("ended"),
        )
        .where(F.col("aborted") | F.col("undecided") | F.col("ended"))
    )
