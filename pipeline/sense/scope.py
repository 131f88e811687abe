"""The scope of a run, as a person asks for it: some topics, some offsets or times, other thresholds than the table's.

Nothing here makes more allowed: inside the scope every rule on what may be cleaned holds as it does without one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pipeline.errors import RefusedError
from pipeline.lake.topic_partition import TopicPartition
from pipeline.segments.arrays import Arrays
from pipeline.sense.bounds import UNBOUNDED, ScopeBounds
from pipeline.sense.lanes import HIDING, Lane

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
        if lane in HIDING and self.bounds != UNBOUNDED:
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
