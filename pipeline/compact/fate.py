"""What becomes of each record, as Spark expressions: kept, superseded, removed, or quarantined (C2 to C5, C7 to C9).

Two passes. The first reads keys and offsets only and finds the newest offset of each key. The second streams whole
records past that; values never go through a shuffle.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.plan import Plan
from pipeline.segments.segment import RUN

FATE = "firn_fate"
KEPT, SUPERSEDED, REMOVED, QUARANTINED = "kept", "superseded", "removed", "quarantined"

BROADCAST_RECORDS = 20_000_000
"""Up to so many input records the offsets that survive are broadcast (16 bytes each); beyond, Spark's join decides."""

_SURVIVES = "firn_survives"
_SUPERSEDES = "firn_supersedes"


def merged(inputs: DataFrame) -> DataFrame:
    """Lane merge: a copy. Every record is kept as it is, stamps included (C13)."""
    return inputs.withColumn(FATE, F.lit(KEPT))


def cleaned(inputs: DataFrame, plan: Plan) -> DataFrame:
    """Lanes clean and full: every input record with its fate, tombstones stamped where they become clean."""
    judged = inputs.join(_survivors(inputs, plan), on="offset", how="left")
    fate = (
        # The end of the log stays even without a key (C4): the next cleaning past it quarantines it.
        F.when(F.col("key").isNull() & (F.col("offset") == plan.log_end_offset), KEPT)
        .when(F.col("key").isNull(), QUARANTINED)
        .when(F.col(_SURVIVES).isNull(), SUPERSEDED)
        .when(_removable(plan), REMOVED)
        .otherwise(KEPT)
    )
    return judged.withColumn(FATE, fate).withColumn("delete_horizon", _horizon(plan)).drop(_SURVIVES, _SUPERSEDES)


def _survivors(inputs: DataFrame, plan: Plan) -> DataFrame:
    """Pass 1: the newest offset of every key, and whether an older one is among the inputs.

    Offsets are unique within a topic partition, so the offset alone finds the record again in pass 2 and keys are
    compared exactly, here and only here (C6).
    """
    newest = (
        inputs.where(F.col("key").isNotNull())
        .groupBy("key")
        .agg(F.max("offset").alias("offset"), (F.min("offset") < F.max("offset")).alias(_SUPERSEDES))
        .select("offset", _SUPERSEDES, F.lit(True).alias(_SURVIVES))
    )
    return F.broadcast(newest) if plan.records <= BROADCAST_RECORDS else newest


def _is_tombstone() -> Column:
    return F.col("value").isNull()


def _is_stamped() -> Column:
    """A stamp counts only where a cleaning wrote it: a landed file may hold anything in this column."""
    return (F.coalesce(F.col("level"), F.lit(0)) >= RUN) & F.col("delete_horizon").isNotNull()


def _is_clean(plan: Plan) -> Column:
    """C7: nothing outside the inputs can hold an older offset."""
    return F.lit(True) if plan.clean_below is None else F.col("offset") < plan.clean_below


def _removable(plan: Plan) -> Column:
    """C9. A tombstone that supersedes a record in this very commit must outlive it, or C2 would not hold."""
    return (
        _is_tombstone()
        & _is_stamped()
        & (F.col("delete_horizon") <= F.timestamp_millis(F.lit(plan.now_ms)))
        & _is_clean(plan)
        & (F.col("offset") != plan.log_end_offset)
        & ~F.col(_SUPERSEDES)
    )


def _horizon(plan: Plan) -> Column:
    """C8: stamped when first found clean, kept from then on; an older record that turned up late starts it again.

    Records without a key keep what they came with.
    """
    stamp = F.timestamp_millis(F.lit(plan.now_ms + plan.delete_retention_ms))
    return (
        F.when(F.col("key").isNull(), F.col("delete_horizon"))
        .when(~_is_tombstone(), F.lit(None))
        .when(_is_stamped() & ~F.col(_SUPERSEDES), F.col("delete_horizon"))
        .when(_is_clean(plan), stamp)
        .otherwise(F.lit(None))
    )
