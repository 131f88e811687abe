"""When lane `erase` is due in a topic partition, and what it waits for (C30).

The lane reads each live segment that may hold a covered record once for each request, and rewrites those that hold
one. It takes all of them in one plan: otherwise readers could see an older record of a key again, once a newer one is
erased. So an obstacle to one segment is an obstacle to the whole topic partition.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from firnlake.iceberg.files import UNREAD, name_of
from firnlake.lanes.answer import Figures, Traits, Waits, Work
from firnlake.lanes.erasure.requests import Erasure, is_by_lane
from firnlake.table.segment import Bools, Segment, Segments, TopicPartition
from firnlake.table.state import Requested, State
from firnlake_expectations.wording import count


def requested_in(
    erasures: Sequence[Erasure], segments: Segments, removed_tombstones: Mapping[TopicPartition, tuple[Segment, ...]]
) -> Mapping[TopicPartition, Requested]:
    """What ``erasures`` ask for, by topic partition, in a table with these ``segments``."""
    asked: dict[str, list[Erasure]] = defaultdict(list)
    for erasure in erasures:
        if not erasure.problem:
            asked[erasure.request.topic].append(erasure)
    return {
        owner: _requested_of(asked[owner.topic], owner, (*segments[owner], *removed_tombstones.get(owner, ())))
        for owner in segments
        if owner.topic in asked
    }


def _requested_of(asked: Sequence[Erasure], owner: TopicPartition, segments: Sequence[Segment]) -> Requested:
    """What ``asked`` ask for in the topic partition ``owner``, whose segments these are."""
    suspects: dict[str, int] = {}
    due: list[int] = []
    mixed = ""
    covered_below = max(erasure.request.log_end(owner.partition) for erasure in asked)
    for erasure in asked:
        log_end, found = erasure.request.log_end(owner.partition), False
        for segment in segments:
            is_late = segment.sequence_number > erasure.request.sequence_number
            if not segment.records or (is_late and segment.base_offset >= log_end):
                continue
            if not is_late and segment.last_offset >= covered_below and erasure.certificate is None:
                mixed = segment.path
            read = erasure.read(segment.path, segment.bytes // segment.copies)
            if read.found if read else not _is_clean(segment, erasure):
                lowest = read.lowest if read else -1
                suspects[segment.path] = min(lowest, suspects.get(segment.path, lowest))
                found = True
        if found:
            due.append(erasure.request.requested_ms if erasure.reads else erasure.request.due_ms)
    return Requested(
        requests=tuple(erasure.request.id for erasure in asked),
        log_end=covered_below,
        suspects=suspects,
        due_ms=min(due, default=None),
        mixed=mixed,
    )


def _is_clean(segment: Segment, erasure: Erasure) -> bool:
    """True when ``segment`` holds no covered record although nobody has read it for the request.

    Once no live segment held one (``Erasure.served``), a lane writes none unless it has taken one that landed late; the
    names of the files that it writes then say so (``UNREAD``).
    """
    if name_of(segment.path).startswith(UNREAD):
        return False
    served = erasure.served.get(segment.topic_partition.partition, -1)
    # A file of a lane may be listed again by others.
    by_lane = is_by_lane(segment.path, erasure) and (segment.by_firn or segment.committed_ms is None)
    return by_lane and 0 <= served < segment.sequence_number


def look(state: State, force: bool) -> Work | Waits:
    """The segments of main, and those of removed tombstones, that must be read or rewritten for the requests.

    New requests wait for further requests (``Request.due_ms``), unless ``force`` is set.
    """
    asked, rule = state.requested, "C30"
    if asked is None:
        return Waits(rule, "there is no request to erase a key")
    if asked.due_ms is None:
        return Waits(rule, "all requests to erase a key are served")
    for obstacle in _obstacles(state, asked):
        return Waits(obstacle.rule, f"requests to erase keys wait: {obstacle.text}", obstacle.until_ms)
    main, beside = (
        tuple(segment for segment in segments if segment.path in asked.suspects)
        for segments in (state.segments, state.removed_tombstones)
    )
    taken = main or _smallest(state)
    if not taken or not (force or state.now_ms >= asked.due_ms):
        return Waits(rule, "requests to erase keys wait for more requests", asked.due_ms)
    reason = f"{count(len(asked.requests), 'request')} to erase keys"
    if known := sum(lowest >= 0 for lowest in asked.suspects.values()):
        reason += f", {count(known, 'segment')} known to hold one"
    return Work(taken, reason, beside=beside, requests=asked.requests)


def _obstacles(state: State, asked: Requested) -> Iterator[Waits]:
    """What keeps lane `erase` from the segments that it must read or rewrite."""
    if asked.mixed:
        yield Waits(
            "C30",
            f"segment {asked.mixed} was there when the keys were requested and ends past the log end of that time, as "
            "after a roll forward; allowed: a new request for the same keys",
        )
    if state.held and state.held.segment.base_offset < asked.log_end:
        yield Waits(state.held.rule, f"segment {state.held.segment} is {state.held.why}", state.held.until_ms)
    if state.undecided and state.undecided.offset < asked.log_end:
        yield Waits("C10", f"a transaction is not decided: {state.undecided}")
    for segment in state.segments:
        if segment.path in asked.suspects and (problem := state.excess(segment)):
            yield Waits("C18", problem)
    for stray in state.strays:
        if stray.base_offset < asked.log_end:
            yield Waits("C20", str(stray))
    if state.kept_from != state.log_end_offset:
        yield Waits(
            "C4",
            f"row-level deletes may hide the log end, offset {state.log_end_offset}, so the highest visible record "
            "must stay",
        )
    if min(asked.suspects.values()) >= state.log_end_offset:
        yield Waits(
            "C4",
            f"the requested record at offset {state.log_end_offset} is the log end, and can be erased only after a "
            "newer record has landed",
        )


def _smallest(state: State) -> tuple[Segment, ...]:
    """The smallest segment of main: a plan needs an input there, even if only removed tombstones are to be read."""
    fit = [segment for segment in state.segments if not segment.row_deletes]
    return (min(fit, key=lambda segment: (segment.bytes, segment.order)),) if fit else ()


def may_be_due(figures: Figures) -> Bools:
    """[P] True where there is a request."""
    return np.array([owner in figures.requested for owner in figures.segments], np.bool_)


TRAITS = Traits("C30", look, may_be_due, serves_requests=True, removal="erased on request")
