"""Wakes the DAG of a table when one of its thresholds is crossed: in the triggerer, without a worker slot or a JVM.

One poll loop serves all tables of an Airflow (Airflow docs, "Event-driven scheduling": shared streams). Events are edge
triggered: what is due and stays due is told once; a clock schedule beside it looks after what was told and not done.
"""

import asyncio
from collections.abc import AsyncIterator, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

if TYPE_CHECKING:
    from pipeline.airflow.watch.watch import Look, Place, Watch

SECONDS = 5.0
"""Between two looks for a new snapshot of a table."""
REASONS_SHOWN = 20


@dataclass
class Edge:
    """What was due in one table at the last look."""

    due: frozenset["Place"] = frozenset()

    def crossed(self, look: "Look") -> list[str]:
        """The titles of what was not due at the look before."""
        fresh = [title for place, title in look.due.items() if place not in self.due]
        self.due = frozenset(look.due)
        return fresh


class ThresholdTrigger(BaseEventTrigger):
    """Fires when something becomes due in ``table``, one of the ``tables`` that share a poll loop.

    The event names the table, the snapshot, how much is due and what is new, such as "orders-3 merge: 41 segments (…)".
    After a restart of the triggerer it fires once more for what is still due: a run that finds nothing to do costs a
    task of a second, a crossing that nobody heard of would wait for the clock.
    """

    def __init__(self, table: str, tables: Sequence[str], seconds: float = SECONDS) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow has no types there
        self.table = table
        self.tables = list(tables)
        self.seconds = seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """As Airflow keeps it: the class, and what it was made with."""
        kind = type(self)
        return (
            f"{kind.__module__}.{kind.__qualname__}",
            {"table": self.table, "tables": self.tables, "seconds": self.seconds},
        )

    def shared_stream_key(self) -> Hashable:
        """Equal for all tables that are looked at together."""
        return (type(self).__qualname__, *self.tables, self.seconds)

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator["Look"]:
        """Look at all tables in turn, for ever."""
        # In threads: the event loop is that of every trigger of the triggerer.
        watch = await asyncio.to_thread(_watch)
        while True:
            for table in kwargs["tables"]:
                look = await asyncio.to_thread(watch.look_now, table)
                if look is not None:
                    yield look
            await asyncio.sleep(kwargs["seconds"])

    async def filter_shared_stream(self, stream: AsyncIterator["Look"]) -> AsyncIterator[TriggerEvent]:
        """The events of this trigger's table."""
        edge = Edge()
        async for look in stream:
            if look.table == self.table and (crossed := edge.crossed(look)):
                yield TriggerEvent(event_of(look, crossed))  # type: ignore[no-untyped-call]  # neither there

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """The same, alone."""
        async for event in self.filter_shared_stream(self.open_shared_stream(self.serialize()[1])):
            yield event


def _watch() -> "Watch":
    # Imported here: it takes seconds, and the DAG processor needs none of it.
    from pipeline.airflow.watch.watch import Watch
    from pipeline.lake import Lake

    return Watch(Lake.load())


def event_of(look: "Look", crossed: Sequence[str]) -> dict[str, Any]:
    """What the event, and so the asset event that starts the DAG, says."""
    return {
        "table": look.table,
        # As text: a browser's numbers are not as long.
        "snapshot_id": str(look.snapshot_id),
        "due": len(look.due),
        "crossed": len(crossed),
        "reasons": list(crossed[:REASONS_SHOWN]),
    }
