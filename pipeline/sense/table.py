"""Read what is needed to tell the state of a table's topic partitions: metadata, and the markers of transactions."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
from pyiceberg.table import Table

from pipeline.errors import RefusedError
from pipeline.history.clocks import newest_clock
from pipeline.lake import Lake
from pipeline.lake.topic_partition import TopicPartition
from pipeline.policy import Policies
from pipeline.segments import Segments, read
from pipeline.segments.arrays import arrays_of
from pipeline.segments.cache import ManifestCache
from pipeline.segments.removed_tombstones import removed_tombstones
from pipeline.sense.bounds import UNBOUNDED
from pipeline.sense.erasing import Erasing, erasing_of
from pipeline.sense.lanes import Lane
from pipeline.sense.masking import masking_of
from pipeline.sense.scope import EVERYTHING, Scope
from pipeline.sense.state import PartitionState
from pipeline.sense.survey import DueSurvey
from pipeline.sense.undecided import transactions_of


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
        masking_of(table),
    )
    return Sensed(segments, survey, restricted, unknown)


def _erasing(table: Table) -> tuple[Mapping[TopicPartition, Erasing], RefusedError | None]:
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
