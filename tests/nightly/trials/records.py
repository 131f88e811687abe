"""Records as writers append them and readers see them, and the columns that hold them."""

from collections.abc import Iterable
from typing import Final, NamedTuple

import pyarrow as pa

TOPIC: Final = "orders"
_TIME: Final = pa.timestamp("us", tz="UTC")
_KAFKA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", _TIME),
        pa.field("timestampType", pa.int32()),
        pa.field("headers", pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
    ]
)
"""The columns of Spark's Kafka source, which files that are landed hold."""
_OF_FIRN: Final = {"level": pa.int32(), "delete_horizon": _TIME}
"""The columns that a table of Firn has beside them; other writers leave them NULL."""


class Record(NamedTuple):
    """One record of the topic; ``value`` None is a tombstone, ``timestamp_ms`` None a record without a time."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None

    @property
    def place(self) -> tuple[int, int]:
        """Partition and offset."""
        return self.partition, self.offset


def landing(records: Iterable[Record]) -> pa.Table:
    """``records`` in the columns of a file to land."""
    held = list(records)
    micros = [None if one.timestamp_ms is None else one.timestamp_ms * 1000 for one in held]
    columns = {
        "key": [one.key for one in held],
        "value": [one.value for one in held],
        "topic": [TOPIC] * len(held),
        "partition": [one.partition for one in held],
        "offset": [one.offset for one in held],
        "timestamp": pa.array(micros, pa.int64()).cast(_TIME),
        "timestampType": [0] * len(held),
        "headers": [[] for _ in held],
    }
    return pa.table(columns, schema=_KAFKA)


def appending(records: Iterable[Record]) -> pa.Table:
    """``records`` in all columns of the table, as a writer appends them that knows nothing of Firn."""
    rows = landing(records)
    for name, kind in _OF_FIRN.items():
        rows = rows.append_column(name, pa.nulls(rows.num_rows, kind))
    return rows
