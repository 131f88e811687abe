"""What the records that were read say of transactions: which were aborted, which are undecided, which markers have
nothing left of their transaction (C10).

Derived from the contract alone: the records of a producer up to and with its next marker are one transaction. Each
transaction is numbered by the markers before it and judged as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from expectations.claim import BURIED, READ

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from expectations.claim import Claim

MARKS = ("aborted", "undecided", "ended")
_COMMIT, _ABORT = "0001", "0000"
"""Type of a control record: bytes 3 and 4 of its key (Kafka's ControlRecordType)."""


def attributes(columns: Collection[str]) -> dict[str, str]:
    """`control`, `transactional` and `producer` of each record as SQL; where there are no such columns it has none."""
    return {
        "control": _flag(columns, "is_control"),
        "transactional": _flag(columns, "is_transactional"),
        "producer": "producer_id" if "producer_id" in columns else "cast(NULL AS bigint)",
    }


def _flag(columns: Collection[str], name: str) -> str:
    return f"coalesce({name}, false)" if name in columns else "false"


def with_marks(compared: DataFrame, claims: Sequence[Claim]) -> DataFrame:
    """A comparison, which has the figures of its claims, with the MARKS on both sides: what was read at an offset
    decides of what was written there."""
    no = F.lit(False)
    if not any(claim.transactional for claim in claims):
        return compared.withColumns(dict.fromkeys(MARKS, no))
    in_topic = F.col("level") != BURIED
    judged = compared.join(_transactions(compared, claims), on=["plan", "offset"], how="left")
    return judged.withColumns({name: in_topic & F.coalesce(name, no) for name in MARKS})


def _transactions(compared: DataFrame, claims: Sequence[Claim]) -> DataFrame:
    """The MARKS of the offsets that have one, by plan."""
    kind = F.when(F.col("control"), F.hex(F.substring("key", 3, 2)))
    inside = compared.where(f"told AND side = '{READ}' AND level != {BURIED} AND (control OR transactional)").select(
        "plan",
        "producer",
        "offset",
        F.when(kind == _COMMIT, F.lit(True)).when(kind == _ABORT, F.lit(False)).alias("commit"),
        (~F.col("control")).alias("data"),
        # What a cleaning has kept, it has judged: levels 2 and 3 hold committed records.
        (~F.col("control") & (F.col("level") < 2)).alias("open"),
    )
    outside = compared.sparkSession.createDataFrame(
        [(number, *marker, False, False) for number, claim in enumerate(claims) for marker in claim.markers],
        "plan int, producer bigint, offset bigint, commit boolean, data boolean, open boolean",
    )
    # Copies of one record are one, whichever segments they were read from.
    events = (
        inside.unionByName(outside)
        .groupBy("plan", "producer", "offset", "commit", "data")
        .agg(F.min("open").alias("open"))
    )
    before = Window.partitionBy("plan", "producer").orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    whole = Window.partitionBy("plan", "producer", "number")
    judged = events.withColumn("number", F.count("commit").over(before)).select(
        "plan",
        "offset",
        "commit",
        "open",
        F.max("commit").over(whole).alias("end"),
        F.max("data").over(whole).alias("any_data"),
    )
    return (
        judged.groupBy("plan", "offset")
        .agg(
            F.max(F.col("open") & F.coalesce(~F.col("end"), F.lit(False))).alias("aborted"),
            F.max(F.col("open") & F.col("end").isNull()).alias("undecided"),
            F.max(F.col("commit").isNotNull() & ~F.col("any_data")).alias("ended"),
        )
        .where(F.col("aborted") | F.col("undecided") | F.col("ended"))
    )
