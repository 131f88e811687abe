"""Detects newly due work of a table, and converts it to and from JSON, without Airflow or PyIceberg."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firnlake.airflow.watch import Look, Place


@dataclass
class Edge:
    """The work that was due in one table when the table was last polled, as lane, topic and partition."""

    due: frozenset["Place"] = frozenset()

    @classmethod
    def of(cls, memory: Any) -> "Edge":
        """The edge that was stored as ``memory``. May raise any exception if ``memory`` has another form."""
        return cls(
            frozenset(
                (lane, topic, partition)
                for lane, topics in memory.items()
                for topic, partitions in topics.items()
                for partition in partitions
            )
        )

    @property
    def memory(self) -> dict[str, Any]:
        """The edge as JSON: the numbers of partitions, by lane and topic."""
        grouped: dict[str, dict[str, list[int]]] = {}
        for lane, topic, partition in sorted(self.due):
            grouped.setdefault(lane, {}).setdefault(topic, []).append(partition)
        return grouped

    def crossed(self, look: "Look") -> list[str]:
        """The titles of the plans in ``look`` that were not due at the previous look; then remembers ``look``."""
        fresh = [title for place, title in look.due.items() if place not in self.due]
        self.due = frozenset(look.due)
        return fresh
