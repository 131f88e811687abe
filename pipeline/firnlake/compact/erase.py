"""Lane `erase`: reads segments for keys to erase, and rewrites those that hold one (C30)."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from pyiceberg.utils.bin_packing import PackingIterator

from firnlake.compact.inputs import PlanInputs
from firnlake.compact.marks import Marks
from firnlake.compact.rewrite import Target, rewrite
from firnlake.compact.tasks import WHOLE_BYTES, Attempt, Task
from firnlake.errors import ConflictError, FirnError
from firnlake.iceberg.branches import REMOVED
from firnlake.iceberg.keys import Flags
from firnlake.job.change import Change
from firnlake.job.outcomes import ByPlan
from firnlake.job.plan import Plan
from firnlake.lanes.erasure.digests import key_bytes
from firnlake.lanes.erasure.requests import Read, RequestedKeys, erasures_of, write_reads
from firnlake.table.history import Counts
from firnlake.table.records import CONTROL
from firnlake.table.segment import Segment


def _erase(requested: RequestedKeys, target: Target, inputs: PlanInputs) -> tuple[Change, Sequence[Sequence[Read]]]:
    """Read some segments of a plan, and rewrite those that lose a record; returns also for each request what was
    read."""
    rewritten: list[Change] = []
    in_place: set[str] = set()
    reads: list[Sequence[Read]] = []
    for segment in inputs.segments:
        going, log_end_stays, found = _read(inputs, requested, segment)
        reads.append(found)
        if not going.any():
            in_place.add(segment.path)
            continue
        hidden = inputs.hidden(segment)
        # Records that row-level deletes hide are not written, whether requested or not (C27).
        erased = going if hidden is None else going[~hidden]
        written = rewrite(inputs, [(segment, Marks.of(len(erased), taken_out=erased))], target)
        # Removed tombstones are no records of main any more, so they do not count (C24).
        counts = Counts() if segment.level == REMOVED else written.counts
        rewritten.append(written.model_copy(update={"counts": counts}))
        if not log_end_stays:
            # What is written holds no covered record, so nobody needs to read it.
            reads += [[Read(file.file_path, file.file_size_in_bytes) for _ in found] for file in written.written]
    return Change.joined(inputs.plan, rewritten, frozenset(in_place)), tuple(zip(*reads, strict=True))


def _read(inputs: PlanInputs, requested: RequestedKeys, segment: Segment) -> tuple[Flags, bool, list[Read]]:
    """Flags of the records to erase from the file, hidden records included; whether a covered record stays because it
    is the log end (C4); and what was read for each request."""
    plan, columns, source = inputs.plan, inputs.columns, inputs.sources[segment.path]
    found = requested.reads(source.path, source.bytes)
    control = CONTROL if plan.transactional else None
    names = filter(None, [*columns.key, columns.offset, control])
    parts, log_end_stays = [np.zeros(0, dtype=np.bool_)], False
    for batch in inputs.files.batches(source, list(dict.fromkeys(names))):
        offsets, keys = inputs.offsets(batch, segment), key_bytes(batch, columns.key, control)
        going = requested.count(found, keys, offsets, plan.topic_partition)
        if segment.level != REMOVED:
            is_end = offsets == plan.log_end_offset
            log_end_stays = log_end_stays or bool((going & is_end).any())
            going &= ~is_end
        parts.append(going)
    return np.concatenate(parts), log_end_stays, found


def erased(attempt: Attempt) -> ByPlan[Change]:
    """Compact plans of lane `erase`, and write down what was read for each request."""
    requests = {erasure.request.id: erasure.request for erasure in erasures_of(attempt.table)}
    failed: dict[str, FirnError] = {}
    tasks: list[Task[tuple[Change, Sequence[Sequence[Read]]]]] = []
    for inputs in attempt.plans:
        if lost := [one for one in inputs.plan.requests if one not in requests]:
            subject = f"plan {inputs.plan.id} ({inputs.plan.title})"
            failed[inputs.plan.id] = ConflictError(f"{subject}: request {lost[0]} is gone; plan again")
        else:
            requested = RequestedKeys(
                str(attempt.table.metadata.table_uuid), [requests[one] for one in inputs.plan.requests]
            )
            work = partial(_erase, requested, attempt.target)
            groups = PackingIterator(inputs.segments, WHOLE_BYTES, lookback=1, weight_func=lambda one: one.bytes)
            tasks += [(inputs.only(group), work) for group in groups]
    parts, raised = attempt.run("erase", tasks)
    erased_by_plan: dict[str, Change] = {}
    for plan in (inputs.plan for inputs in attempt.plans if inputs.plan.id in parts):
        results = [result for result, _ in parts[plan.id]]
        _write_down(attempt, plan, [reads for _, reads in parts[plan.id]])
        erased_by_plan[plan.id] = Change.joined(plan, results)
    return erased_by_plan, failed | raised


def _write_down(attempt: Attempt, plan: Plan, parts: Sequence[Sequence[Sequence[Read]]]) -> None:
    """Write what the tasks have read for each request, which is true whether or not the plan is published, because
    files never change."""
    snapshot = attempt.table.snapshot_by_id(plan.snapshot_id)
    for index, request_id in enumerate(plan.requests):
        rows = [read for reads in parts for read in reads[index]]
        clean = snapshot is not None and not any(read.found for read in rows)
        served = {plan.partition: snapshot.sequence_number or 0} if clean and snapshot else {}
        write_reads(attempt.table, request_id, rows, served)
