"""The memory of lane `mask`: which segments of a table were compared, and how many records are hidden in each.

It saves work, and counts as garbage what is hidden; no record depends on it. ``pipeline.masks.stored`` says where it
is kept. Lost, it costs one comparison of everything.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from pipeline.lake.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class Compared:
    """How far the segments of one topic partition were compared with each other.

    Of all segments with a file sequence number up to ``sequence_number``, those of the tail and those that begin below
    offset ``before`` showed one record per key after the commit.
    """

    topic: str
    partition: int
    sequence_number: int
    """That of the snapshot which the comparison was planned on."""
    before: int | None
    """None: all offsets."""
    snapshot_id: int
    """Main's snapshot that the commit made."""
    end: int | None
    """Highest offset that readers saw among these, or past them; None: none was seen, or nobody looked."""
    end_path: str
    """The segment that holds it; empty without one."""
    committed: int = 0
    """Sequence number of main's snapshot; the commit itself fills it in."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Hidden:
    """``records`` of the segment ``path`` were hidden when it was compared last, by masks or by other deletes."""

    topic: str
    partition: int
    path: str
    records: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True)
class Masks:
    """The memory of lane `mask` about a table."""

    compared: tuple[Compared, ...] = ()
    """One per topic partition."""
    hidden: tuple[Hidden, ...] = ()
    """Of segments with hidden records."""

    def compared_in(self, topic_partition: TopicPartition) -> Compared | None:
        """How far ``topic_partition`` is compared; None: not at all."""
        return self._compared.get(topic_partition)

    def hidden_in(self, topic_partition: TopicPartition) -> Mapping[str, int]:
        """Number of hidden records in the segments of ``topic_partition``, by path."""
        return self._hidden.get(topic_partition, {})

    @property
    def topic_partitions(self) -> tuple[TopicPartition, ...]:
        """The topic partitions of which anything is known, sorted."""
        return tuple(sorted({*self._compared, *self._hidden}))

    def after(self, compared: Iterable[Compared], hidden: Iterable[Hidden]) -> "Masks":
        """These masks once ``compared`` and ``hidden`` hold for the topic partitions of ``compared``."""
        new = {one.topic_partition: one for one in compared}
        kept = (one for one in self.compared if one.topic_partition not in new)
        others = (one for one in self.hidden if one.topic_partition not in new)
        return Masks(
            tuple(sorted((*kept, *new.values()), key=lambda one: one.topic_partition)),
            tuple(sorted((*others, *hidden), key=lambda one: (one.topic_partition, one.path))),
        )

    @cached_property
    def _compared(self) -> dict[TopicPartition, Compared]:
        return {one.topic_partition: one for one in self.compared}

    @cached_property
    def _hidden(self) -> dict[TopicPartition, dict[str, int]]:
        by_partition: dict[TopicPartition, dict[str, int]] = {}
        for one in self.hidden:
            by_partition.setdefault(one.topic_partition, {})[one.path] = one.records
        return by_partition
