"""Read what tells the state of a table's topic partitions, within the scope that a person asks for."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
from pyiceberg.table import Table

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.job.lane import POSITION_DELETING, Lane
from firnlake.lanes.erasure.memory import ErasureMemory, erasing_of
from firnlake.lanes.hiding.memory import hide_memory_of
from firnlake.plan.survey import DueSurvey
from firnlake.table.arrays import Arrays, arrays_of
from firnlake.table.partition import UNBOUNDED, PartitionState, ScopeBounds
from firnlake.table.policies import Policies
from firnlake.table.segment import Segments
from firnlake.table.segment_cache import ManifestCache
from firnlake.table.segments import read, removed_tombstones
from firnlake.table.summaries import newest_clock
from firnlake.table.topic_partition import TopicPartition
from firnlake.table.transactions import transactions_of

SHOWN = 20
"""So many topics or partitions are named when one that was asked for is not there."""


@dataclass(frozen=True)
class Scope:
    """Whole ``topics`` and single ``partitions``, or (with neither) all; ``bounds``; and ``properties`` (``firn.…``, of
    those that are ``OVERRIDABLE``) that hold for this run instead of the table's."""

    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    bounds: ScopeBounds = UNBOUNDED
    properties: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def obstacle(self, lane: Lane) -> str | None:
        """Why ``lane`` can't keep to this scope, and what is allowed; None when it can."""
        if lane is Lane.RETAIN and (self.bounds != UNBOUNDED or self.properties):
            return (
                f"lane {lane} can't keep to {self}; allowed: topics and topic partitions, because the table's "
                "properties alone set its retention"
            )
        if lane is Lane.ERASE and self.bounds != UNBOUNDED:
            return (
                f"lane {lane} can't keep to {self}; allowed: topics and topic partitions, because a key is erased from "
                "all of a topic partition at once"
            )
        if lane in POSITION_DELETING and self.bounds != UNBOUNDED:
            return (
                f"lane {lane} can't keep to {self}; allowed: topics and topic partitions, because its delete files are "
                "about all of a topic partition"
            )
        if lane is Lane.FULL and self.bounds.begins:
            return f"lane {lane} can't keep to {self}; allowed: upper bounds, because it cleans a log from its start"
        return None

    def check(self, lane: Lane) -> None:
        """RefusedError when ``lane`` can't keep to this scope."""
        if obstacle := self.obstacle(lane):
            raise RefusedError(obstacle)

    def topic_partitions(self, identifier: str, arrays: Arrays) -> frozenset[TopicPartition] | None:
        """Those of table ``identifier`` that are meant; None: all. RefusedError when one that was named is not there.

        ``arrays`` are the table's segments.
        """
        if not self.topics and not self.partitions:
            return None
        missing = [topic for topic in self.topics if topic not in arrays.topics]
        if missing:
            raise _absent(identifier, "topic", missing, arrays.topics)
        every = [arrays.topic_partition(place) for place in range(len(arrays.topic))] if self.topics else []
        absent = [one for one in self.partitions if arrays.place(one) is None]
        if absent:
            known = (arrays.topic_partition(place) for place in range(min(SHOWN + 1, len(arrays.topic))))
            raise _absent(identifier, "topic partition", absent, [*map(str, known)])
        return frozenset(one for one in every if one.topic in self.topics) | frozenset(self.partitions)

    def __str__(self) -> str:
        """Such as ``orders-3, offsets ..4711, firn.merge.segments=4``; empty when it is everything."""
        changes = (f"{name}={value}" for name, value in self.properties.items())
        return ", ".join(filter(None, (*self.topics, *map(str, self.partitions), str(self.bounds), *changes)))


EVERYTHING = Scope()


def _absent(identifier: str, kind: str, missing: Iterable[object], known: Iterable[str]) -> RefusedError:
    present = [*known]
    more = ", …" if len(present) > SHOWN else ""
    return RefusedError(
        f"table {identifier} has no {kind} {', '.join(map(str, missing))}; found: "
        f"{', '.join(present[:SHOWN]) or 'none'}{more}"
    )


@dataclass(frozen=True)
class Sensed:
    """A table, read once; the states of its topic partitions at one clock can be asked for lane by lane."""

    segments: Segments
    survey: DueSurvey
    only: frozenset[TopicPartition]
    """Restricts it to these; empty: all."""
    unknown_erasures: RefusedError | None = None
    """Why the requests to erase keys can't be read: then lane ``erase`` alone is refused."""

    def states(self, lane: Lane | None = None, force: bool = False) -> list[PartitionState]:
        """The state of the topic partitions, the filthiest first.

        With a ``lane`` those are left out for which nothing is due there (``force`` as in ``due``), unless they have
        segments that no plan can take, which somebody should be told of.
        """
        wanted = np.ones(len(self.survey.arrays.topic), dtype=np.bool_)
        if self.only:
            places = [place for where in self.only if (place := self.survey.arrays.place(where)) is not None]
            wanted[:] = False
            wanted[places] = True
        # What is cut in pieces by bounds may be due though the whole is left to another lane.
        if lane is not None and self.survey.bounds == UNBOUNDED:
            wanted &= self.survey.may_be_due(lane, force) | self.survey.oversized
        return [self.survey.state(place) for place in self.survey.filthiest_first(np.flatnonzero(wanted))]


def read_once(
    lake: Lake,
    identifier: str,
    now_ms: int,
    only: Collection[TopicPartition] = (),
    look_at_transactions: bool = True,
    scope: Scope = EVERYTHING,
) -> Sensed:
    """Read table ``identifier`` as it is seen at ``now_ms``.

    ``only`` restricts it to these topic partitions, ``scope`` to those that it means. Without ``look_at_transactions``
    no record is read. Raises RefusedError for an unknown table, a table without the record columns, a wrong property,
    or a topic or property of the ``scope`` that is not there or not a run's to say.
    """
    table = lake.table(identifier)
    policies = Policies.parse(identifier, table.properties, scope.properties)
    cache = ManifestCache.of(lake)
    segments = replace(read(table, identifier, cache=cache), newest_clock_ms=newest_clock(table))
    arrays = arrays_of(segments)
    meant = scope.topic_partitions(identifier, arrays)
    restricted = frozenset(only) if meant is None else meant
    transactions = transactions_of(table, segments, restricted) if look_at_transactions else {}
    removed = removed_tombstones(lake, identifier, cache)
    erasing, unknown = _erasing(table)
    survey = DueSurvey(
        arrays,
        policies,
        now_ms,
        segments.strays,
        removed,
        transactions,
        scope.bounds,
        erasing,
        hide_memory_of(table),
    )
    return Sensed(segments, survey, restricted, unknown)


def _erasing(table: Table) -> tuple[Mapping[TopicPartition, ErasureMemory], RefusedError | None]:
    try:
        return erasing_of(table), None
    except RefusedError as error:
        return {}, error


def sense_table(
    lake: Lake,
    identifier: str,
    now_ms: int,
    only: Collection[TopicPartition] = (),
    look_at_transactions: bool = True,
    lane: Lane | None = None,
) -> tuple[Segments, list[PartitionState]]:
    """The segments of table ``identifier`` and the state of its topic partitions, the filthiest first.

    The arguments are those of ``read_once`` and of ``Sensed.states``."""
    sensed = read_once(lake, identifier, now_ms, only, look_at_transactions)
    return sensed.segments, sensed.states(lane)
