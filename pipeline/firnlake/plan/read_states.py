"""Read the states of a table's topic partitions, within the scope that a person asks for."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import data_folder, metadata_folder
from firnlake.iceberg.parquet import WriteOptions
from firnlake.lanes import Lane, quiet, quiet_until
from firnlake.lanes.answer import Figures
from firnlake.lanes.erase import requested_in
from firnlake.lanes.erasure.requests import erasures_of
from firnlake.table.history import newest_clock
from firnlake.table.manifest_reader import ManifestCache, read
from firnlake.table.policy import Policies
from firnlake.table.removed_tombstones import removed_tombstones
from firnlake.table.restarts import restarted
from firnlake.table.segment import Segment, Segments, TopicPartition
from firnlake.table.state import Requested, State
from firnlake.table.transactions import NO_TRANSACTIONS, Transactions, transactions_of

SHOWN = 20
"""Maximum number of topics, topic partitions or segments that people are told of at once; there may be a million."""


@dataclass(frozen=True)
class Scope:
    """The part of a table to which a run is restricted, and the properties that the run overrides."""

    topics: tuple[str, ...] = ()
    """Whole topics; without ``topics`` and ``partitions``, the run is for all topic partitions."""
    partitions: tuple[TopicPartition, ...] = ()
    """Single topic partitions, in addition to ``topics``."""
    properties: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Properties (``firn.…``, only ``OVERRIDABLE`` ones) that replace the table's properties in this run."""

    def obstacle(self, lane: Lane) -> str | None:
        """Why ``lane`` can't keep to this scope, and what is allowed; None when it can."""
        if lane.traits.writes != "nothing" or not self.properties:
            return None
        allowed = "topics and topic partitions, because only the table's properties set its retention"
        return f"lane {lane} can't be restricted to {self}; allowed: {allowed}"

    def topic_partitions(self, segments: Segments) -> frozenset[TopicPartition]:
        """The topic partitions with ``segments`` that this scope names; empty if it names none and so covers all.

        Raises RefusedError if a named topic or topic partition does not exist.
        """
        topics = list(dict.fromkeys(owner.topic for owner in segments))
        for kind, named, present in (
            ("topic", self.topics, topics),
            ("topic partition", self.partitions, segments.owners),
        ):
            if missing := [str(one) for one in named if one not in present]:
                more = ", …" if len(present) > SHOWN else ""
                raise RefusedError(
                    f"table {segments.identifier} has no {kind} {', '.join(missing)}; found: "
                    f"{', '.join(map(str, present[:SHOWN])) or 'none'}{more}"
                )
        return frozenset(one for one in segments if one.topic in self.topics) | frozenset(self.partitions)

    def __str__(self) -> str:
        """A text such as ``orders-3, firn.merge.segments=4``; empty if the scope is the whole table."""
        changes = (f"{name}={value}" for name, value in self.properties.items())
        return ", ".join(filter(None, (*self.topics, *map(str, self.partitions), *changes)))


EVERYTHING = Scope()


@dataclass(frozen=True)
class Sensed:
    """A table that was read once, to get the states of its topic partitions at one time for several lanes."""

    segments: Segments
    policies: Policies
    now_ms: int
    removed_tombstones: Mapping[TopicPartition, tuple[Segment, ...]] = field(default_factory=dict)
    transactions: Mapping[TopicPartition, Transactions] = field(default_factory=dict)
    requested: Mapping[TopicPartition, Requested] = field(default_factory=dict)
    """The requests for keys, by topic partition."""
    only: frozenset[TopicPartition] = frozenset()
    """The topic partitions to which ``states`` is restricted; empty for all."""

    @cached_property
    def figures(self) -> Figures:
        """Of all topic partitions."""
        return Figures(self.segments, self.policies, self.now_ms, self.removed_tombstones, self.requested)

    @cached_property
    def quiet(self) -> frozenset[TopicPartition]:
        """The topic partitions in which nothing is due (``lanes.quiet``)."""
        silent = quiet(self.figures) if self.segments else ()
        return frozenset(self.segments.owners[place] for place in np.flatnonzero(silent).tolist())

    @cached_property
    def quiet_until(self) -> Mapping[TopicPartition, int]:
        """By topic partition, the clock (epoch milliseconds) before which nothing is due (``lanes.quiet_until``)."""
        clocks = quiet_until(self.figures).tolist() if self.segments else ()
        return dict(zip(self.segments.owners, clocks, strict=True))

    def states(self, every: bool = True) -> Iterator[State]:
        """Yield the states of the topic partitions, by topic and partition; without ``every``, of those not quiet."""
        chosen = sorted(self.only & self.segments.keys()) if self.only else self.segments
        return (self.state(where) for where in chosen if every or where not in self.quiet)

    def state(self, where: TopicPartition) -> State:
        """The state of the topic partition ``where``."""
        return State(
            where,
            self.segments[where],
            self.policies.of(where.topic),
            self.now_ms,
            self.segments.strays_of(where),
            self.removed_tombstones.get(where, ()),
            self.transactions.get(where, NO_TRANSACTIONS),
            self.requested.get(where),
            self._restarts.get(where.topic, ""),
        )

    @cached_property
    def _restarts(self) -> Mapping[str, str]:
        return restarted(self.segments, self.policies)


def read_once(
    lake: Lake,
    identifier: str,
    now_ms: int,
    look_at_transactions: bool = True,
    scope: Scope = EVERYTHING,
) -> Sensed:
    """Read table ``identifier``, for states at the time ``now_ms`` (epoch milliseconds) in ``scope``.

    Without ``look_at_transactions`` no record is read. Raises RefusedError for an unknown table, a table without the
    record columns, a wrong property, a topic or topic partition of ``scope`` that does not exist, or a property of
    ``scope`` that a run may not override.
    """
    table = lake.table(identifier)
    policies = Policies.parse(identifier, table.properties, scope.properties)
    # Firn's files are in these folders, written with these options, so a wrong property would refuse every plan.
    WriteOptions(table.schema(), table.properties, identifier).check()
    data_folder(table), metadata_folder(table)
    cache = ManifestCache.of(lake)
    segments = replace(read(table, identifier, cache=cache), newest_clock_ms=newest_clock(table))
    only = scope.topic_partitions(segments)
    transactions = transactions_of(table, segments, only) if look_at_transactions else {}
    removed = removed_tombstones(table, identifier, cache)
    requested = requested_in(erasures_of(table), segments, removed)
    return Sensed(segments, policies, now_ms, removed, transactions, requested, only)
