"""The topic partition, which is Kafka's unit of order and Firn's unit of cleaning; and record times as numbers."""

from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pydantic_core import CoreSchema, core_schema

from firnlake.errors import RefusedError


class TopicPartition(NamedTuple):
    """A topic and the number of one of its partitions."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """The name in Kafka's form: ``orders-3``."""
        return f"{self.topic}-{self.partition}"

    @classmethod
    def parse(cls, text: str) -> "TopicPartition":
        """Parse Kafka's form, such as ``orders-3``; raises RefusedError for any other ``text``."""
        topic, dash, partition = text.rpartition("-")
        if not dash or not (partition.isascii() and partition.isdigit()):
            raise RefusedError(f"{text!r} is not a topic partition; allowed: <topic>-<partition>, such as orders-0")
        return cls(topic, int(partition))

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> CoreSchema:
        """In documents, it is its name."""
        named = core_schema.no_info_plain_validator_function(
            lambda value: value if isinstance(value, cls) else cls.parse(str(value))
        )
        named["serialization"] = core_schema.to_string_ser_schema()
        return named


def in_ms(records: pa.Table) -> pa.Table:
    """``records`` with every date and timestamp, of any unit and zone, as epoch milliseconds, rounded down."""
    for place, one in enumerate(records.schema):
        if pa.types.is_timestamp(one.type) or pa.types.is_date(one.type):
            micros = records[one.name].cast(pa.timestamp("us", getattr(one.type, "tz", None))).cast(pa.int64())
            records = records.set_column(place, one.name, _floored(micros))
    return records


def _floored(micros: pa.ChunkedArray) -> pa.ChunkedArray:
    # Arrow's integer division rounds towards zero.
    whole = pc.divide(micros, 1000)
    return pc.if_else(pc.greater(pc.multiply(whole, 1000), micros), pc.subtract(whole, 1), whole)
