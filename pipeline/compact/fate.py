"""What becomes of each record, as Spark expressions: kept, superseded, removed, or quarantined (C2 to C5, C7 to C9).

Two passes. The first reads keys and offsets only and finds the newest offset of each key. The second streams whole
records past that; values never go through a shuffle.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.compact.working import COLUMNS, HORIZON, KEY, LEVEL, OFFSET, TOMBSTONE, WAS_BURIED
from pipeline.plan import Plan
from pipeline.segments.segment import RUN

FATE = "firn_fate"
KEPT, SUPERSEDED, REMOVED, QUARANTINED = "kept", "superseded", "removed", "quarantined"
RESTORED = "restored"
"""Removed by an earlier cleaning, and back because an older record of its key turned up."""
STILL_BURIED = "still buried"
"""Removed by an earlier cleaning, and read only to see whether it is needed again."""

BROADCAST_RECORDS = 20_000_000
"""Up to so many input records the offsets that survive are broadcast (16 bytes each); beyond, Spark's join decides."""

_SURVIVES = "firn_survives"
_SUPERSEDES = "firn_supersedes"


def merged(inputs: DataFrame) -> DataFrame:
    """Lane merge: a copy. Every record is kept as it is, stamps included (C13)."""
    return inputs.withColumn(FATE, F.lit(KEPT)).drop(*COLUMNS)


def cleaned(inputs: DataFrame, plan: Plan) -> DataFrame:
    """The other lanes: every input record with its fate, tombstones stamped where they become clean."""
    if plan.buried:
        # A tombstone that was restored once and removed again is buried twice.
        buried = inputs.where(F.col(WAS_BURIED)).dropDuplicates([KEY, OFFSET])
        inputs = inputs.where(~F.col(WAS_BURIED)).unionByName(buried)
    survivors = _survivors(inputs, plan)
    # One join column where one is enough: Spark has a faster hash table for a single long.
    judged = (
        inputs.join(survivors, on=[OFFSET, WAS_BURIED], how="left")
        if plan.buried
        else inputs.join(survivors.drop(WAS_BURIED), on=OFFSET, how="left")
    )
    fate = (
        F.when(F.col(WAS_BURIED), F.when(F.col(_SURVIVES).isNull(), STILL_BURIED).otherwise(RESTORED))
        # The end of the log stays even without a key (C4): the next cleaning past it quarantines it.
        .when(F.col(KEY).isNull() & (F.col(OFFSET) == plan.log_end_offset), KEPT)
        .when(F.col(KEY).isNull(), QUARANTINED)
        .when(F.col(_SURVIVES).isNull(), SUPERSEDED)
        .when(_removable(plan), REMOVED)
        .otherwise(KEPT)
    )
    return judged.withColumn(FATE, fate).withColumn(HORIZON, _horizon(plan)).drop(*COLUMNS, _SURVIVES, _SUPERSEDES)


def _survivors(inputs: DataFrame, plan: Plan) -> DataFrame:
    """Pass 1: the newest offset of every key, and whether an older one is among the inputs.

    Offsets are unique within a topic partition, so the offset alone finds the record again in pass 2 and keys are
    compared exactly, here and only here (C6). A buried tombstone counts only where a record of its key is in the table
    again, and only if it is newer than all of them.
    """
    present = F.when(~F.col(WAS_BURIED), F.col(OFFSET))
    buried = F.when(F.col(WAS_BURIED), F.col(OFFSET)) if plan.buried else F.lit(None).cast("bigint")
    newest = (
        inputs.where(F.col(KEY).isNotNull())
        .groupBy(KEY)
        .agg(F.max(present).alias("newest"), F.min(present).alias("oldest"), F.max(buried).alias("buried"))
        .where(F.col("newest").isNotNull())
        .select(
            F.greatest("newest", "buried").alias(OFFSET),
            F.coalesce(F.col("buried") > F.col("newest"), F.lit(False)).alias(WAS_BURIED),
            (F.col("oldest") < F.greatest("newest", "buried")).alias(_SUPERSEDES),
            F.lit(True).alias(_SURVIVES),
        )
    )
    return F.broadcast(newest) if plan.records <= BROADCAST_RECORDS else newest


def _is_stamped() -> Column:
    """A stamp counts only where a cleaning wrote it: a landed file may hold anything in this column."""
    return (F.col(LEVEL) >= RUN) & F.col(HORIZON).isNotNull()


def _is_clean(plan: Plan) -> Column:
    """C7: nothing outside the inputs can hold an older offset."""
    return F.lit(True) if plan.clean_below is None else F.col(OFFSET) < plan.clean_below


def _removable(plan: Plan) -> Column:
    """C9. A tombstone that supersedes a record in this very commit must outlive it, or C2 would not hold."""
    return (
        F.col(TOMBSTONE)
        & _is_stamped()
        & (F.col(HORIZON) <= F.timestamp_millis(F.lit(plan.now_ms)))
        & _is_clean(plan)
        & (F.col(OFFSET) != plan.log_end_offset)
        & ~F.col(_SUPERSEDES)
    )


def _horizon(plan: Plan) -> Column:
    """C8: stamped when first found clean, kept from then on; an older record that turned up late starts it again.

    Records without a key keep what they came with.
    """
    stamp = F.timestamp_millis(F.lit(plan.now_ms + plan.delete_retention_ms))
    return (
        F.when(F.col(KEY).isNull(), F.col(HORIZON))
        .when(~F.col(TOMBSTONE), F.lit(None))
        .when(_is_stamped() & ~F.col(_SUPERSEDES), F.col(HORIZON))
        .when(_is_clean(plan), stamp)
        .otherwise(F.lit(None))
    )
