"""The claim about a change that the judge tests: derived from the change, never taken from its plan.

The figures that a plan, a result or a summary tells are only compared with those of the judge.
"""

from collections.abc import Sequence

from pyiceberg.manifest import DataFile

from firnlake import clock
from firnlake.clock import show_ms
from firnlake.iceberg.files import name_of
from firnlake.job.change import PlanChange
from firnlake.job.plan import Input, Plan
from firnlake.table.segment import TAIL
from firnlake.validate.basis import Basis
from firnlake.validate.change import JudgedChange
from firnlake_expectations.claim import Claim

Figures = dict[str, tuple[object, object]]
"""By name, a figure as it is told, and as the judge has found it."""


def claim_of(change: JudgedChange, staged: PlanChange | None = None) -> Claim:
    """The claim about ``change``; ``staged`` is the change itself if it is not committed yet."""
    basis, owner, lane = change.basis, change.plan.topic_partition, change.lane
    transactional = basis.transactional(owner, change.taken, lane)
    retention = basis.retention_ms(change.plan.topic) if lane.traits.cleans else 0
    behind = basis.behind_ms(change.now_ms)
    end, kept_from = basis.log_end(owner), basis.kept_from(owner)
    told = _counted(change) | {"clock": _clock(change.now_ms)}
    if staged:
        told |= _planned(change, staged.plan) | _resulting(change, staged)
    return Claim(
        table=basis.identifier,
        lane=lane.value,
        plan_id=change.plan.id,
        topic=owner.topic,
        partition=owner.partition,
        now_ms=change.now_ms,
        snapshot_id=basis.snapshot.snapshot_id,
        level_out=lane.traits.level_out or 0,
        clean_below=basis.clean_below(owner, change.taken),
        log_end_offset=end,
        kept_from=None if kept_from == end else kept_from,
        delete_retention_ms=None if retention is None else retention + behind,
        transactional=transactional,
        markers=tuple(basis.markers(owner, change.taken)) if transactional and not lane.traits.serves_requests else (),
        figures=tuple((name, str(one), str(found)) for name, (one, found) in told.items()),
        **change.plan.counts.model_dump(exclude={"expired"}),
    )


def _counted(change: JudgedChange) -> Figures:
    """The files and bytes that the record counts tell (C24), and those of the change."""
    counts, written = change.plan.counts, change.added or change.deletes
    told: Figures = {
        "segments read": (counts.segments_in, _segments(change.removed)),
        "bytes read": (counts.bytes_in, _bytes(change.removed)),
        "segments written": (counts.segments_out, _segments(change.added)),
        "bytes written": (counts.bytes_out, _bytes(written)),
    }
    if change.lane.traits.writes == "nothing":  # no judge reads its records
        told["records read"] = (counts.records_in, sum(one.record_count for one in change.removed))
    return told


def _described(basis: Basis, plan: Plan) -> Figures:
    """The inputs that ``plan`` describes otherwise than the manifests do."""
    owner = plan.topic_partition
    known = {one.path: one for one in (*basis.own(owner), *basis.tombstones(owner))}
    wrong: Figures = {}
    for one in (*plan.inputs, *plan.removed_tombstones):
        segment = known.get(one.path)
        found = None if segment is None else Input.of(segment, one.may_stay)
        if one != found:
            wrong[f"input {name_of(one.path)}"] = (one, found)
    return wrong


def _planned(change: JudgedChange, plan: Plan) -> Figures:
    """The figures of ``plan``, and those of the snapshot on which it was made."""
    basis, owner, lane = change.basis, change.plan.topic_partition, change.lane
    taken = {one.path for one in plan.inputs}
    end = basis.log_end(owner)
    told: Figures = {
        "log end": (plan.log_end_offset, end),
        "end that readers may see": (end if plan.kept_from is None else plan.kept_from, basis.kept_from(owner)),
        "lowest offset outside": (plan.clean_below, basis.clean_below(owner, taken)),
        "clock behind": (plan.clock_behind_ms, basis.behind_ms(plan.now_ms)),
        "data sequence number": (plan.sequence_number, basis.data_sequence_number(lane)),
        "transactional": (plan.transactional, basis.transactional(owner, taken, lane)),
        **_described(basis, plan),
    }
    if not lane.traits.serves_requests:  # otherwise, the judge reads all segments, also those that its counts leave out
        counts = change.plan.counts
        told["segments left in place"] = (counts.segments_in_place, _segments(change.left))
        told["bytes left in place"] = (counts.bytes_in_place, _bytes(change.left))
        records = 0 if lane.traits.writes == "deletes" else sum(one.record_count for one in change.left)
        told["records left in place"] = (counts.records_in_place, records)
    if lane.traits.level_out == TAIL:
        back = [name_of(one.path) for one in plan.removed_tombstones]
        told["removed tombstones"] = (sorted(back), sorted(map(name_of, basis.returning(owner, taken))))
    told["requests served"] = (plan.requests, tuple(one.id for one in change.requests))
    return told


def _resulting(change: JudgedChange, staged: PlanChange) -> Figures:
    """What ``staged`` tells beside its counts, and what the files of the change say."""
    told: Figures = {} if change.lane.traits.writes == "nothing" else {"records expired": (staged.counts.expired, 0)}
    if change.lane.traits.writes != "deletes":
        told["delete files merged"] = (len(staged.merged), 0)
    return told


def _clock(planned_ms: int) -> tuple[object, object]:
    latest = clock.latest_ms()
    return show_ms(planned_ms), show_ms(planned_ms) if planned_ms <= latest else f"at most {show_ms(latest)}"


def _segments(files: Sequence[DataFile]) -> int:
    return len({one.file_path for one in files})


def _bytes(files: Sequence[DataFile]) -> int:
    return sum(one.file_size_in_bytes for one in files)
