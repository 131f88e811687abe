"""The state of each request to erase keys, and what keeps the request from its certificate (C30)."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from firnlake.iceberg.catalog import Lake
from firnlake.job.failures import FailedPlan, failed_plans, waiting
from firnlake.job.lane import Lane
from firnlake.lanes.erasure.history import older_snapshots, vanished
from firnlake.lanes.erasure.memory import read_erasures
from firnlake.lanes.erasure.requests import Certificate, Erasures, Request
from firnlake.lanes.erasure.searches import obstacles
from firnlake.maintain.inventory import Blocker, together
from firnlake.plan.make import plan_partition
from firnlake.plan.read_states import read_once
from firnlake.table.partition import PartitionState
from firnlake.table.segment import Segments
from firnlake.table.topic_partition import TopicPartition


@dataclass(frozen=True)
class RequestStatus:
    """The status of a request at some time. Times are epoch milliseconds."""

    id: int
    topic: str
    keys: int
    requested_ms: int
    deadline_ms: int
    """The earliest deadline of the request's keys."""
    done: tuple[TopicPartition, ...]
    """The topic partitions in which main holds no record of the request, because they were searched or have no file."""
    waiting: tuple[TopicPartition, ...]
    """The topic partitions that have yet to be searched."""
    destroyed_files: int
    """Number of files that were removed for this request and the requests that were served together with it."""
    records_erased: int
    """Number of records that were erased for this request and the requests that were served together with it."""
    certificate: Certificate | None
    blockers: list[Blocker] = field(default_factory=list)

    def state(self, now_ms: int) -> str:
        """``certified``, ``erased`` (from main), ``open``, or ``overdue``."""
        if self.certificate:
            return "certified"
        if now_ms > self.deadline_ms:
            return "overdue"
        return "open" if self.waiting else "erased"


def status(lake: Lake, identifier: str, now_ms: int) -> list[RequestStatus]:
    """The state of every request of table ``identifier``, oldest first; reads no data file.

    Raises RefusedError for an unknown table, or one whose requests are lost.
    """
    with lake.answering():
        table = lake.table(identifier)
        erasures = read_erasures(table)
        gone = vanished(lake, table, identifier, erasures)
        open_in = {
            row.topic_partition
            for request in erasures.ids
            if erasures.certificate_of(request) is None
            for row in erasures.rows_of(request)
            if not erasures.is_done(row) and row.topic_partition not in gone
        }
        sensed = read_once(lake, identifier, now_ms, open_in) if open_in else None
        states = {state.topic_partition: state for state in sensed.states()} if sensed else {}
        failed = _refused(lake, sensed.segments, states.values()) if sensed else {}
        statuses = []
        for request in erasures.ids:
            one = _status(erasures, request, gone)
            if one.certificate is None:
                for place in one.waiting:
                    row = next(row for row in erasures.rows_of(request) if row.topic_partition == place)
                    one.blockers.extend(_of_partition(identifier, row, states.get(place), failed.get(place)))
                one.blockers.extend(older_snapshots(table, erasures, request))
            statuses.append(one)
        return statuses


def _refused(lake: Lake, segments: Segments, states: Iterable[PartitionState]) -> dict[TopicPartition, FailedPlan]:
    """The failed searches that another run would not try again, by topic partition."""
    plans = [plan for state in states if (plan := plan_partition(Lane.ERASE, segments, state, force=True))]
    return {plan.topic_partition: marker for plan, marker in waiting(failed_plans(lake, segments.identifier), plans)}


def _status(erasures: Erasures, request: int, gone: Collection[TopicPartition]) -> RequestStatus:
    rows = erasures.rows_of(request)
    places = {one.topic_partition for one in rows}
    unserved = {one.topic_partition for one in rows if not erasures.is_done(one)} - set(gone)
    destroyed = [one for one in erasures.destroyed if one.through >= request and one.topic_partition in places]
    return RequestStatus(
        id=request,
        topic=rows[0].topic,
        keys=len({one.digest for one in rows}),
        requested_ms=rows[0].requested_ms,
        deadline_ms=min(one.deadline_ms for one in rows),
        done=tuple(sorted(places - unserved)),
        waiting=tuple(sorted(unserved)),
        destroyed_files=len(destroyed),
        records_erased=sum(one.records for one in destroyed),
        certificate=erasures.certificate_of(request),
    )


def _of_partition(
    identifier: str, row: Request, state: PartitionState | None, failed: FailedPlan | None
) -> list[Blocker]:
    """The blockers that keep lane `erase` from the topic partition of ``row``."""
    place = str(row.topic_partition)
    if failed:
        lift = f"removing the cause, and then firn retry {identifier}"
        return [Blocker("refused plan", place, str(failed.failure), lift)]
    if state is None:
        why = "only branch firn_tombstones has segments of the topic partition, main has none"
        lift = "a new record, or the removal of its last tombstone from firn_tombstones (firn.late.max.ms)"
        return [Blocker("topic partition", place, why, lift)]
    blockers = list(_obstacles(place, state))
    due_ms = state.erasing.due_ms if state.erasing else None
    if not blockers and due_ms is not None and state.now_ms < due_ms:
        why = "the request waits for other requests, so that one search serves all of them"
        blockers.append(Blocker("batch", place, why, f"firn run {identifier} --lane erase --force", due_ms))
    if not blockers:
        blockers.append(Blocker("lane erase", place, "the lane is due, but has not run yet", f"firn run {identifier}"))
    return together(blockers)


_KINDS = {
    "C4": ("log end", "a newer record"),
    "C10": ("transaction", "the transaction's commit or abort marker"),
    "C11": ("lag", "time, or lower values of firn.min.compaction.lag.ms and firn.active.segments"),
    "C18": ("large segment", "a higher firn.max.input.bytes"),
    "C20": ("segment", "rewriting or removing the file"),
    "C27": ("row-level deletes", "lane convert, or rewrite_data_files, which apply the deletes"),
}
"""The kind of an obstacle, and what lifts it, by the number of the rule."""


def _obstacles(place: str, state: PartitionState) -> Iterator[Blocker]:
    for text in state.blockers:
        yield Blocker("topic partition", place, text, "what the message allows")
    for one in obstacles(state):
        kind, lift = _KINDS.get(one.rule, (one.rule, "what the message allows"))
        yield Blocker(kind, place, one.why, lift, one.until_ms)
