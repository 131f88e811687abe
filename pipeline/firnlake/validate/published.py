"""The suite that users of Great Expectations run on a published table, without Firn."""

from typing import Any

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.data_files import DataFiles
from firnlake.table.columns import ColumnRoles
from firnlake.table.policies import Policies
from firnlake.table.segments import read
from firnlake.validate.cases import reading_of
from firnlake_expectations.published import LeftOut, published


def published_suite(lake: Lake, identifier: str) -> dict[str, Any]:
    """The suite of table ``identifier`` as Great Expectations' JSON.

    It leaves out the segments that are larger than ``firn.max.input.bytes`` now, because no lane takes them. Raises
    RefusedError if a column has a name that SQL engines do not read alike.
    """
    with lake.answering():
        table = lake.table(identifier)
        segments = read(table, identifier)
    policies = Policies.parse(identifier, table.properties)
    intervals = [policies.of(one.topic).full_interval_ms for one in segments.by_partition]
    too_large = [
        LeftOut(one.topic_partition.topic, one.topic_partition.partition, one.base_offset, one.last_offset)
        for one in segments
        if one.bytes > policies.of(one.topic_partition.topic).max_input_bytes
    ]
    reading = reading_of(DataFiles.of(table), ColumnRoles.of(table, identifier))
    try:
        return published(
            identifier,
            reading,
            table.schema().column_names,
            overdue_ms=max(intervals, default=None) if all(one >= 0 for one in intervals) else None,
            left_out=too_large,
        )
    except ValueError as error:
        raise RefusedError(f"table {identifier}: {error}") from error
