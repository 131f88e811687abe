"""The trigger that starts a table's DAG when a threshold is crossed. It needs neither a worker slot nor a JVM.

One poll loop serves all tables of an Airflow (Airflow docs, "Event-driven scheduling": shared streams). Events are
edge-triggered: a lane that stays due causes one event, and another one after a restart of the triggerer. The cron
schedule of the DAG covers work that was announced but not done.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Hashable
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from firnlake.clock import now_ms

if TYPE_CHECKING:
    from firnlake.airflow.watch import Look, Place, Watch

SECONDS = 5.0
"""Seconds between two polls for new snapshots."""
REASONS_SHOWN = 20


class ThresholdTrigger(BaseEventTrigger):
    """Trigger that fires when a plan becomes due in ``table``.

    It knows of no other table: a process that parses DAGs hashes a DAG, with its trigger, hundreds of times.
    The event has the table, the snapshot, the number of due plans, and the titles of the newly due ones, such as
    "orders-3 merge: 41 segments (…)".
    """

    _subscribed: ClassVar[set["ThresholdTrigger"]] = set()
    """The triggers whose tables the poll loop of this process reads."""

    def __init__(self, table: str, seconds: float = SECONDS) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's has no types
        self.table = table
        self.seconds = seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The form in which Airflow stores the trigger: the class and its arguments."""
        kind = type(self)
        return f"{kind.__module__}.{kind.__qualname__}", {"table": self.table, "seconds": self.seconds}

    def shared_stream_key(self) -> Hashable:
        """The key of the poll loop, equal for all tables that share it."""
        return (type(self).__qualname__, self.seconds)

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator["Look"]:
        """Poll the tables of all subscribed triggers in turn, forever."""
        # In threads, because all triggers of a triggerer share the event loop.
        watch = await asyncio.to_thread(_watch)
        while True:
            for table in sorted({trigger.table for trigger in cls._subscribed}):
                look = await asyncio.to_thread(watch.look, table, now_ms())
                if look is not None:
                    yield look
            await asyncio.sleep(kwargs["seconds"])

    async def filter_shared_stream(self, stream: AsyncIterator["Look"]) -> AsyncIterator[TriggerEvent]:
        """The events of this trigger's table; each starts the table's DAG."""
        announced: Collection[Place] = ()
        self._subscribed.add(self)
        try:
            async for look in stream:
                if look.table == self.table:
                    if crossed := look.beyond(announced):
                        event = {
                            "table": self.table,
                            # As text, because 64-bit numbers lose digits in a browser.
                            "snapshot_id": str(look.snapshot_id),
                            "due": len(look.due),
                            "crossed": len(crossed),
                            "reasons": crossed[:REASONS_SHOWN],
                        }
                        yield TriggerEvent(event)  # type: ignore[no-untyped-call]  # same here
                    announced = look.due.keys()
        finally:
            self._subscribed.discard(self)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the events of this trigger without a shared loop."""
        async for event in self.filter_shared_stream(self.open_shared_stream(self.serialize()[1])):
            yield event


def _watch() -> "Watch":
    # Imported here, because the import takes seconds and the DAG processor does not need it.
    from firnlake.airflow.watch import Watch
    from firnlake.iceberg.catalog import Lake

    return Watch(Lake.load())
