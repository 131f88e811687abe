"""Segments of ``<table>__tombstones``: the tombstones that were removed from a table, beside it."""

from collections.abc import Mapping

from pyiceberg.table import Table

from pipeline.lake.catalog import Lake
from pipeline.lake.topic_partition import TopicPartition
from pipeline.segments.cache import ManifestCache
from pipeline.segments.read import read
from pipeline.segments.segment import Segment

SUFFIX = "__tombstones"


def find(lake: Lake, identifier: str) -> Table | None:
    """The table of tombstones removed from table ``identifier``; None while none was ever removed."""
    name = f"{identifier}{SUFFIX}"
    return lake.table(name) if lake.when_free(lambda: lake.catalog.table_exists(name)) else None


def buried(
    lake: Lake, identifier: str, cache: ManifestCache | None = None
) -> Mapping[TopicPartition, tuple[Segment, ...]]:
    """The segments of removed tombstones, by topic partition, in offset order."""
    table = find(lake, identifier)
    return read(table, f"{identifier}{SUFFIX}", cache=cache).by_partition if table else {}
