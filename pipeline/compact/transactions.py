"""Which records of a plan belong to aborted transactions, and which markers nothing is left of (C10).

One window over producer, offset and kind of the transactional records only; a plan whose metadata rules them out pays
nothing. Kafka's CleanedTransactionMetadata does the same with the transaction index while it reads the log in order.
"""

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.compact.bitmap import bitmaps, has, with_words
from pipeline.compact.working import LEVEL, OFFSET, WAS_BURIED
from pipeline.plan import Plan
from pipeline.segments.segment import RUN

CONTROL = "_firn_control"
ABORTED = "_firn_aborted"
ENDED = "_firn_ended"
TRANSACTION_COLUMNS = (CONTROL, ABORTED, ENDED)

_ABORTED_BITS, _ENDED_BITS = "_firn_aborted_bits", "_firn_ended_bits"
_EVENTS = pa.schema(
    [("producer", pa.int64()), ("at", pa.int64()), ("commit", pa.bool_()), ("landed", pa.bool_()), ("read", pa.bool_())]
)
_PRODUCER, _COMMIT, _AT, _READ = "producer", "commit", "at", "read"


def with_transactions(inputs: DataFrame, plan: Plan) -> DataFrame:
    """``inputs`` and three marks, never NULL.

    ``CONTROL`` is a control record, ``ABORTED`` a record of an aborted transaction, ``ENDED`` a marker of whose
    transaction no record is among the inputs. Offsets are unique in ``inputs``.
    """
    no = F.lit(False)
    if not plan.transactional:
        return inputs.withColumns(dict.fromkeys(TRANSACTION_COLUMNS, no))
    marks = _marks(inputs, plan)
    words = bitmaps(marks, F.col(OFFSET), {_ABORTED_BITS: F.col(ABORTED), _ENDED_BITS: F.col(ENDED)})
    # What was removed earlier was committed, whatever has its offset now.
    live = ~F.col(WAS_BURIED)
    found = {
        CONTROL: live & _is_control(),
        ABORTED: live & has(_ABORTED_BITS, F.col(OFFSET)),
        ENDED: live & has(_ENDED_BITS, F.col(OFFSET)),
    }
    return with_words(inputs, F.col(OFFSET), words).withColumns(found).drop(_ABORTED_BITS, _ENDED_BITS)


def _marks(inputs: DataFrame, plan: Plan) -> DataFrame:
    """``ABORTED`` and ``ENDED`` for the offsets that one of them holds for.

    A marker that the plan names and that is among the inputs as well, from another segment, is there twice.
    """
    inside = inputs.where(~F.col(WAS_BURIED) & (_is_control() | _is_transactional())).select(
        F.col("producer_id").alias(_PRODUCER),
        F.col(OFFSET).alias(_AT),
        _commit().alias(_COMMIT),
        # Levels 2 and 3 hold what a cleaning has kept: it was committed, and its marker may be gone.
        (~_is_control() & (F.col(LEVEL) < RUN)).alias("landed"),
        (~_is_control()).alias(_READ),
    )
    events = inside.unionByName(_outside(inputs, plan))
    is_marker = F.col(_COMMIT).isNotNull()
    later = Window.partitionBy(_PRODUCER).orderBy(F.desc(_AT)).rowsBetween(Window.unboundedPreceding, -1)
    before = Window.partitionBy(_PRODUCER).orderBy(_AT).rowsBetween(Window.unboundedPreceding, -1)
    end = F.last(_COMMIT, ignorenulls=True).over(later)
    last_record = F.max(F.when(F.col(_READ), F.col(_AT))).over(before)
    last_end = F.max(F.when(is_marker, F.col(_AT))).over(before)
    seen = last_record.isNotNull() & (last_end.isNull() | (last_record > last_end))
    return events.select(
        F.col(_AT).alias(OFFSET),
        (F.col("landed") & F.coalesce(~end, F.lit(False))).alias(ABORTED),
        (is_marker & ~seen).alias(ENDED),
    ).where(F.col(ABORTED) | F.col(ENDED))


def _outside(inputs: DataFrame, plan: Plan) -> DataFrame:
    """The markers that the plan names, as events."""
    rows = [
        dict(zip((_PRODUCER, _AT, _COMMIT), marker, strict=True), landed=False, read=False) for marker in plan.markers
    ]
    return inputs.sparkSession.createDataFrame(pa.Table.from_pylist(rows, _EVENTS))


def _is_control() -> Column:
    return F.coalesce("is_control", F.lit(False))


def _is_transactional() -> Column:
    return F.coalesce("is_transactional", F.lit(False))


def _commit() -> Column:
    """True for a marker that commits, False for one that aborts, NULL for anything else (Kafka's ControlRecordType)."""
    kind = F.when(_is_control(), F.hex(F.substring("key", 3, 2)))
    return F.when(kind == "0001", F.lit(True)).when(kind == "0000", F.lit(False))
