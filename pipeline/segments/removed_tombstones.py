"""Segments of the branch ``firn_tombstones``, which holds tombstones removed from a table (C9)."""

from collections.abc import Mapping
from dataclasses import replace

from pipeline.lake.branches import REMOVED_TOMBSTONES, on_branch
from pipeline.lake.catalog import Lake
from pipeline.lake.topic_partition import TopicPartition
from pipeline.segments.cache import ManifestCache
from pipeline.segments.read import read
from pipeline.segments.segment import Segment


def removed_tombstones(
    lake: Lake, identifier: str, cache: ManifestCache | None = None
) -> Mapping[TopicPartition, tuple[Segment, ...]]:
    """The segments of removed tombstones, by topic partition, in offset order."""
    branch = on_branch(lake.table(identifier), REMOVED_TOMBSTONES)
    # A cache of its own: in a shared one, each branch would count the other's rows as stale.
    own = replace(cache, folder=cache.folder / REMOVED_TOMBSTONES) if cache else None
    return read(branch, f"{identifier} ({REMOVED_TOMBSTONES})", cache=own).by_partition
