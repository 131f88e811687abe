"""Read what is needed to tell the state of a table's topic partitions: metadata, and the markers of transactions."""

from collections.abc import Collection
from dataclasses import replace

from pipeline.lake import Lake
from pipeline.policy import Policies
from pipeline.segments import Segments, TopicPartition, read
from pipeline.segments.buried import buried
from pipeline.segments.cache import ManifestCache
from pipeline.segments.commits import newest_clock
from pipeline.sense.state import PartitionState, sense
from pipeline.sense.undecided import transactions_of


def sense_table(
    lake: Lake,
    identifier: str,
    now_ms: int,
    only: Collection[TopicPartition] = (),
    look_at_transactions: bool = True,
) -> tuple[Segments, list[PartitionState]]:
    """The segments of table ``identifier`` and the state of its topic partitions at ``now_ms``, the filthiest first.

    ``only`` restricts it to these topic partitions. Without ``look_at_transactions`` no record is read. Raises
    RefusedError for an unknown table, a table without the record columns, or a wrong property.
    """
    table = lake.table(identifier)
    policies = Policies.parse(identifier, table.properties)
    cache = ManifestCache.of(lake)
    segments = replace(read(table, identifier, cache=cache), newest_clock_ms=newest_clock(table))
    wanted = frozenset(only)
    transactions = transactions_of(table, segments, wanted) if look_at_transactions else {}
    found = sense(segments, policies, now_ms, buried(lake, identifier, cache), transactions)
    return segments, [state for state in found if not wanted or state.topic_partition in wanted]
