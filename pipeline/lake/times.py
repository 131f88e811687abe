"""Record times as numbers: producers set them, and they may lie outside Python's calendar."""

import pyarrow as pa
import pyarrow.compute as pc


def in_ms(records: pa.Table) -> pa.Table:
    """``records`` with every timestamp, of any unit and zone, as epoch milliseconds, rounded down."""
    for place, one in enumerate(records.schema):
        if pa.types.is_timestamp(one.type):
            micros = records[one.name].cast(pa.timestamp("us", tz=one.type.tz)).cast(pa.int64())
            records = records.set_column(place, one.name, _floored(micros))
    return records


def _floored(micros: pa.ChunkedArray) -> pa.ChunkedArray:
    # Arrow's integer division rounds towards zero.
    whole = pc.divide(micros, 1000)
    return pc.if_else(pc.greater(pc.multiply(whole, 1000), micros), pc.subtract(whole, 1), whole)
