"""Which records of a plan belong to aborted transactions, and which markers nothing is left of (C10).

One window over producer, offset and kind of the transactional records only; a plan whose metadata rules them out pays
nothing. Kafka's CleanedTransactionMetadata does the same with the transaction index while it reads the log in order.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.compact.working import LEVEL, OFFSET, WAS_BURIED, small
from pipeline.plan import Plan
from pipeline.segments.segment import RUN

CONTROL = "_firn_control"
ABORTED = "_firn_aborted"
ENDED = "_firn_ended"
TRANSACTION_COLUMNS = (CONTROL, ABORTED, ENDED)

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
    marked = inputs.withColumn(CONTROL, _is_control()).join(small(marks, plan), on=OFFSET, how="left")
    # What was removed earlier was committed, whatever has its offset now.
    live = ~F.col(WAS_BURIED)
    return marked.withColumns({name: live & F.coalesce(name, no) for name in TRANSACTION_COLUMNS})


def _marks(inputs: DataFrame, plan: Plan) -> DataFrame:
    """``ABORTED`` and ``ENDED`` for the offsets that one of them holds for."""
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
    return (
        events.select(
            F.col(_AT).alias(OFFSET),
            (F.col("landed") & F.coalesce(~end, F.lit(False))).alias(ABORTED),
            (is_marker & ~seen).alias(ENDED),
        )
        .where(F.col(ABORTED) | F.col(ENDED))
        # A marker that the plan names and that is among the inputs as well, from another segment, is one marker.
        .groupBy(OFFSET)
        .agg(F.max(ABORTED).alias(ABORTED), F.max(ENDED).alias(ENDED))
    )


def _outside(inputs: DataFrame, plan: Plan) -> DataFrame:
    """The markers that the plan names, as events."""
    schema = f"{_PRODUCER} bigint, {_AT} bigint, {_COMMIT} boolean, landed boolean, {_READ} boolean"
    rows = [(*marker, False, False) for marker in plan.markers]
    return inputs.sparkSession.createDataFrame(rows, schema)


def _is_control() -> Column:
    return F.coalesce("is_control", F.lit(False))


def _is_transactional() -> Column:
    return F.coalesce("is_transactional", F.lit(False))


def _commit() -> Column:
    """True for a marker that commits, False for one that aborts, NULL for anything else (Kafka's ControlRecordType)."""
    kind = F.when(_is_control(), F.hex(F.substring("key", 3, 2)))
    return F.when(kind == "0001", F.lit(True)).when(kind == "0000", F.lit(False))
