"""What becomes of each record, as Spark expressions: kept, superseded, removed, or quarantined (C2 to C5, C7 to C10).

Two passes. The first reads keys and offsets only and finds the newest offset of each key. The second streams whole
records past that; values never go through a shuffle.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.compact.transactions import ABORTED, CONTROL, ENDED, TRANSACTION_COLUMNS, with_transactions
from pipeline.compact.working import COLUMNS, HORIZON, KEY, LEVEL, OFFSET, TOMBSTONE, WAS_BURIED, small
from pipeline.plan import Plan
from pipeline.segments.segment import RUN

FATE = "_firn_fate"
KEPT, SUPERSEDED, REMOVED, QUARANTINED = "kept", "superseded", "removed", "quarantined"
OF_ABORTED, MARKER_REMOVED = "of an aborted transaction", "marker removed"
RESTORED = "restored"
"""Removed by an earlier cleaning, and back because an older record of its key turned up."""
STILL_BURIED = "still buried"
"""Removed by an earlier cleaning, and read only to see whether it is needed again."""

_PLACE = "_firn_place"
_SURVIVES = "_firn_survives"
_SUPERSEDES = "_firn_supersedes"


def merged(inputs: DataFrame) -> DataFrame:
    """Lane merge: a copy. Every record is kept as it is, stamps included (C13)."""
    return inputs.withColumn(FATE, F.lit(KEPT)).drop(*COLUMNS)


def cleaned(inputs: DataFrame, plan: Plan) -> DataFrame:
    """The other lanes: every input record with its fate, tombstones stamped where they become clean."""
    if plan.buried:
        # A tombstone that was restored once and removed again is buried twice.
        # (Not by dropDuplicates: it makes every column nullable, and a table may require some.)
        place = F.row_number().over(Window.partitionBy(KEY, OFFSET).orderBy(OFFSET))
        buried = inputs.where(F.col(WAS_BURIED)).withColumn(_PLACE, place).where(F.col(_PLACE) == 1).drop(_PLACE)
        inputs = inputs.where(~F.col(WAS_BURIED)).unionByName(buried)
    inputs = with_transactions(inputs, plan)
    survivors = _survivors(inputs, plan)
    # One join column where one is enough: Spark has a faster hash table for a single long.
    judged = (
        inputs.join(survivors, on=[OFFSET, WAS_BURIED], how="left")
        if plan.buried
        else inputs.join(survivors.drop(WAS_BURIED), on=OFFSET, how="left")
    )
    fate = (
        F.when(F.col(WAS_BURIED), F.when(F.col(_SURVIVES).isNull(), STILL_BURIED).otherwise(RESTORED))
        # Control records have no user key, whatever their bytes, and neither has what was aborted (C10).
        .when(F.col(CONTROL), F.when(_marker_removable(plan), MARKER_REMOVED).otherwise(KEPT))
        .when(F.col(ABORTED), OF_ABORTED)
        # The end of the log stays even without a key (C4): the next cleaning past it quarantines it.
        .when(F.col(KEY).isNull() & (F.col(OFFSET) == plan.log_end_offset), KEPT)
        .when(F.col(KEY).isNull(), QUARANTINED)
        .when(F.col(_SURVIVES).isNull(), SUPERSEDED)
        .when(_removable(plan), REMOVED)
        .otherwise(KEPT)
    )
    state = judged.withColumn(FATE, fate).withColumn(HORIZON, _horizon(plan))
    return state.drop(*COLUMNS, *TRANSACTION_COLUMNS, _SURVIVES, _SUPERSEDES)


def _survivors(inputs: DataFrame, plan: Plan) -> DataFrame:
    """Pass 1: the newest offset of every key, and whether an older one is among the inputs.

    Offsets are unique within a topic partition, so the offset alone finds the record again in pass 2 and keys are
    compared exactly, here and only here (C6). A buried tombstone counts only where a record of its key is in the table
    again, and only if it is newer than all of them.
    """
    present = F.when(~F.col(WAS_BURIED), F.col(OFFSET))
    buried = F.when(F.col(WAS_BURIED), F.col(OFFSET)) if plan.buried else F.lit(None).cast("bigint")
    newest = (
        inputs.where(F.col(KEY).isNotNull() & ~F.col(CONTROL) & ~F.col(ABORTED))
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
    return small(newest, plan)


def _is_stamped() -> Column:
    """A stamp counts only where a cleaning wrote it: a landed file may hold anything in this column."""
    return (F.col(LEVEL) >= RUN) & F.col(HORIZON).isNotNull()


def _is_clean(plan: Plan) -> Column:
    """C7: nothing outside the inputs can hold an older offset."""
    return F.lit(True) if plan.clean_below is None else F.col(OFFSET) < plan.clean_below


def _may_go(plan: Plan) -> Column:
    """C9: stamped by an earlier commit, past the horizon, clean again now, and not the end of the log (C4)."""
    return (
        _is_stamped()
        & (F.col(HORIZON) <= F.timestamp_millis(F.lit(plan.now_ms)))
        & _is_clean(plan)
        & (F.col(OFFSET) != plan.log_end_offset)
    )


def _removable(plan: Plan) -> Column:
    """C9. A tombstone that supersedes a record in this very commit must outlive it, or C2 would not hold."""
    return F.col(TOMBSTONE) & _may_go(plan) & ~F.col(_SUPERSEDES)


def _marker_removable(plan: Plan) -> Column:
    """C10: in the same two stages, and only while no record of its transaction is seen."""
    return F.col(ENDED) & _may_go(plan)


def _horizon(plan: Plan) -> Column:
    """C8: stamped when first found clean, kept from then on; an older record that turned up late starts it again.

    Likewise a marker of whose transaction nothing is left (C10). Records without a key keep what they came with.
    """
    stamp = F.timestamp_millis(F.lit(plan.now_ms + plan.delete_retention_ms))
    marker = (
        F.when(~F.col(ENDED), F.lit(None))
        .when(_is_stamped(), F.col(HORIZON))
        .when(_is_clean(plan), stamp)
        .otherwise(F.lit(None))
    )
    return (
        F.when(F.col(CONTROL), marker)
        .when(F.col(KEY).isNull(), F.col(HORIZON))
        .when(~F.col(TOMBSTONE), F.lit(None))
        .when(_is_stamped() & ~F.col(_SUPERSEDES), F.col(HORIZON))
        .when(_is_clean(plan), stamp)
        .otherwise(F.lit(None))
    )
