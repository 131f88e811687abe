"""What becomes of each record, as Spark expressions: kept, superseded, removed, or quarantined (C2 to C5, C7 to C10).

This is pass 2: whole records are streamed past what pass 1 found out; values never go through a shuffle.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.compact.bitmap import has, with_words
from pipeline.compact.figures import CLEAN_BELOW, LOG_END, NOW, STAMP
from pipeline.compact.newest import LOSES, SUPERSEDES, SURVIVES
from pipeline.compact.transactions import ABORTED, CONTROL, ENDED
from pipeline.compact.working import HORIZON, KEY, LEVEL, OFFSET, POSITION, TOMBSTONE, WAS_BURIED
from pipeline.segments.segment import RUN, TAIL

FATE = "_firn_fate"
KEPT, REMOVED, QUARANTINED, RESTORED, OF_ABORTED, MARKER_REMOVED = range(6)
"""RESTORED: removed by an earlier cleaning, and back because an older record of its key turned up.

Numbers, because they are compared for every record.
"""
NAMES = {
    REMOVED: "removed",
    QUARANTINED: "quarantined",
    RESTORED: "restored",
    OF_ABORTED: "of aborted transactions",
    MARKER_REMOVED: "transaction markers removed",
}
IS_NEWEST = "_firn_is_newest"
"""Whether pass 1 told the record to survive."""

_HAS_OLDER = "_firn_has_older"


def merged(inputs: DataFrame) -> DataFrame:
    """Lane merge: a copy. Every record is kept as it is, stamps included (C13)."""
    return inputs.withColumn(FATE, F.lit(KEPT))


def cleaned(inputs: DataFrame, words: DataFrame) -> DataFrame:
    """The other lanes: the records that are not superseded with their fate, tombstones stamped where they become clean.

    ``words`` are what pass 1 found out (``newest``); with the column LOSES a record of the tail survives unless it is
    told to lose, otherwise every record has to be told to survive.
    """
    position = F.col(POSITION)
    survives = has(SURVIVES, position)
    if LOSES in words.columns:
        survives = F.when(F.col(LEVEL) == TAIL, ~has(LOSES, position)).otherwise(survives)
    judged = with_words(inputs, position, words).withColumns(
        {IS_NEWEST: survives, _HAS_OLDER: has(SUPERSEDES, position)}
    )
    # Before anything else is asked of a record: what is superseded goes without a look at its value.
    keyless = F.col(KEY).isNull() & ~F.col(WAS_BURIED)
    judged = judged.where(F.col(IS_NEWEST) | keyless | F.col(CONTROL) | F.col(ABORTED))
    fate = (
        F.when(F.col(WAS_BURIED), RESTORED)
        # Control records have no user key, whatever their bytes, and neither has what was aborted (C10).
        .when(F.col(CONTROL), F.when(_removable(), MARKER_REMOVED).otherwise(KEPT))
        .when(F.col(ABORTED), OF_ABORTED)
        # The end of the log stays even without a key (C4): the next cleaning past it quarantines it.
        .when(F.col(KEY).isNull() & (F.col(OFFSET) == F.col(LOG_END)), KEPT)
        .when(F.col(KEY).isNull(), QUARANTINED)
        .when(_removable(), REMOVED)
        .otherwise(KEPT)
    )
    return judged.withColumn(FATE, fate).withColumn(HORIZON, _horizon())


def _passes() -> Column:
    """Whether the record is one that goes in two stages: a tombstone, or a marker of whose transaction nothing is left.

    A marker supersedes nothing (C10).
    """
    return F.when(F.col(CONTROL), F.col(ENDED)).otherwise(F.col(TOMBSTONE))


def _is_stamped() -> Column:
    """A stamp counts only where a cleaning wrote it: a landed file may hold anything in this column."""
    return (F.col(LEVEL) >= RUN) & F.col(HORIZON).isNotNull()


def _is_clean() -> Column:
    """C7: nothing outside the inputs can hold an older offset."""
    return F.col(CLEAN_BELOW).isNull() | (F.col(OFFSET) < F.col(CLEAN_BELOW))


def _removable() -> Column:
    """C9: stamped by an earlier commit, past the horizon, clean again now, and not the end of the log (C4).

    A tombstone that supersedes a record in this very commit must outlive it, or C2 would not hold.
    """
    due = _is_stamped() & (F.col(HORIZON) <= F.col(NOW)) & _is_clean()
    return _passes() & due & (F.col(OFFSET) != F.col(LOG_END)) & ~F.col(_HAS_OLDER)


def _horizon() -> Column:
    """C8: stamped when first found clean, kept from then on; an older record that turned up late starts it again.

    Records without a key keep what they came with.
    """
    return (
        F.when(F.col(KEY).isNull() & ~F.col(CONTROL), F.col(HORIZON))
        .when(~_passes(), F.lit(None))
        .when(_is_stamped() & ~F.col(_HAS_OLDER), F.col(HORIZON))
        .when(_is_clean(), F.col(STAMP))
        .otherwise(F.lit(None))
    )
