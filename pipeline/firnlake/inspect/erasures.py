"""How far each request to erase keys has come, and what it waits for (C30)."""

from collections.abc import Collection
from dataclasses import dataclass

from firnlake.iceberg.catalog import Lake
from firnlake.inspect.outlook import in_words
from firnlake.inspect.outlook import outlooks as outlooks_of
from firnlake.lanes import SERVING
from firnlake.lanes.erasure.certificate import older_snapshots, unserved
from firnlake.lanes.erasure.requests import Erasure, erasures_of
from firnlake.table.topic_partition import TopicPartition


@dataclass(frozen=True)
class RequestStatus:
    """A request, and what it waits for in words; only a search finds what tags, branches and other files hold."""

    erasure: Erasure
    waiting: tuple[TopicPartition, ...]
    """The topic partitions of main that lane `erase` has yet to serve."""
    reasons: tuple[str, ...]

    def state(self, now_ms: int) -> str:
        """``certified``, ``erased`` (from main), ``open``, or ``overdue``; ``now_ms`` is in epoch milliseconds."""
        if self.erasure.certificate is not None:
            return "certified"
        if now_ms > self.erasure.request.deadline_ms:
            return "overdue"
        return "open" if self.waiting else "erased"


def status(lake: Lake, identifier: str, now_ms: int) -> list[RequestStatus]:
    """The state of every request of table ``identifier``, oldest first; reads no data file.

    Raises RefusedError for an unknown table, or one with a request that is lost.
    """
    with lake.answering():
        table = lake.table(identifier)
        erasures = erasures_of(table)
        waiting = unserved(lake, table, identifier, [one for one in erasures if one.certificate is None])
        held = _held(lake, identifier, now_ms, {owner for owners in waiting.values() for owner in owners})
        statuses = []
        for erasure in erasures:
            owners = tuple(sorted(waiting.get(erasure.request.id, ())))
            older = None if erasure.certificate else older_snapshots(table, erasure)
            reasons = [erasure.problem, *(f"{owner}: {held[owner]}" for owner in owners), str(older or "")]
            if erasure.certificate is None and not any(reasons):
                reasons = [f"every file must be searched: firn maintain {identifier}, or firn erase --certify"]
            statuses.append(RequestStatus(erasure, owners, tuple(filter(None, reasons))))
        return statuses


def _held(lake: Lake, identifier: str, now_ms: int, owners: Collection[TopicPartition]) -> dict[TopicPartition, str]:
    """Why lane `erase` has not served each of ``owners`` yet."""
    if not owners:
        return {}
    held = dict.fromkeys(owners, f"lane erase is due, but has not run yet (firn run {identifier})")
    _, outlooks = outlooks_of(lake, identifier, now_ms, owners)
    for owner, outlook in outlooks.items():
        if SERVING not in outlook.due:
            reason = outlook.not_due(SERVING)
            held[owner] = f"{reason.rule}: {in_words(reason)}"
    return held
