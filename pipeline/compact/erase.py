"""Lane `erase`: rewrites the segments that hold a record of a requested key, and leaves all others in place (C30).

Segments do not depend on each other: each is searched by its keys and offsets, and written anew only if a record of it
goes. What stays keeps its level and its delete horizon.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow.compute as pc

from pipeline.compact.inputs import InputSegment, PlanInputs
from pipeline.compact.marks import Marks
from pipeline.compact.results import failure
from pipeline.compact.rewrite import Target, rewrite
from pipeline.compact.tasks import WHOLE_BYTES, Result, perform
from pipeline.engine import Engine
from pipeline.erase.digests import Matcher, key_bytes
from pipeline.erase.requests import Erasures
from pipeline.errors import FirnError
from pipeline.lake.numpy_types import Flags
from pipeline.staging.result import DestroyedFile

CONTROL = "is_control"
"""The column that is true for control records, which have no user key (C10)."""


@dataclass(frozen=True)
class EraseTask:
    """Search some segments of a plan, and write those anew that lose a record."""

    inputs: PlanInputs
    matcher: Matcher = field(repr=False)
    target: Target

    def __call__(self) -> Result:
        parts = [self._searched(segment) for segment in self.inputs.segments]
        return _together(parts)

    def _searched(self, segment: InputSegment) -> Result:
        requested, log_end_kept = self._requested(segment)
        if not requested.any():
            return Result((), Counter(), 0, frozenset({segment.path}), (), log_end_kept)
        source, hidden = segment.source, self.inputs.hidden(segment)
        sha256 = self.inputs.files.sha256(source)
        # What row-level deletes hide is not written, requested or not (C27).
        erased = requested if hidden is None else requested[~hidden]
        written = rewrite(self.inputs, [(segment, Marks(len(erased), erased=erased))], self.target)
        records = int(np.count_nonzero(requested)) * segment.facts.copies
        gone = DestroyedFile(path=source.path, bytes=source.bytes, sha256=sha256, records=records)
        return Result(
            tuple(written.files), written.counts, written.fingerprint, frozenset[str](), (gone,), log_end_kept
        )

    def _requested(self, segment: InputSegment) -> tuple[Flags, bool]:
        """The records of the file to erase, hidden ones included, and whether a requested one stays because it is the
        log end (C4)."""
        plan, columns = self.inputs.plan, self.inputs.columns
        before = plan.searched.before
        names = [*columns.key, columns.offset, *([CONTROL] if plan.transactional else [])]
        parts, log_end_kept = [np.zeros(0, dtype=np.bool_)], False
        for batch in self.inputs.files.batches(segment.source, list(dict.fromkeys(names))):
            offsets = self.inputs.offsets(batch, segment)
            requested = self.matcher.matches(key_bytes(batch, columns.key), offsets)
            if before is not None:
                requested &= offsets < before
            if plan.transactional:
                requested &= ~pc.fill_null(batch.column(CONTROL), fill_value=False).to_numpy(zero_copy_only=False)
            if not segment.removed_before:
                end = requested & (offsets == plan.log_end_offset)
                log_end_kept = log_end_kept or bool(end.any())
                requested &= ~end
            parts.append(requested)
        return np.concatenate(parts), log_end_kept


def erased(
    plans: Sequence[PlanInputs], erasures: Erasures, target: Target, engine: Engine, title: str
) -> tuple[dict[str, Result], dict[str, FirnError]]:
    """The results of ``plans`` of lane `erase`, and the errors of the others, by plan id."""
    tasks = [(one.plan.id, task) for one in plans for task in _tasks(one, erasures, target)]
    weights = [task.inputs.bytes for _, task in tasks]
    results = engine.map(perform, [task for _, task in tasks], weights=weights, title=f"erase {title}")
    parts: dict[str, list[Result]] = defaultdict(list)
    failed: dict[str, FirnError] = {}
    by_id = {one.plan.id: one for one in plans}
    for (plan_id, _), part in zip(tasks, results, strict=True):
        if isinstance(part, Result):
            parts[plan_id].append(part)
        else:
            failed.setdefault(plan_id, failure(by_id[plan_id], part))
    return {plan_id: _together(own) for plan_id, own in parts.items() if plan_id not in failed}, failed


def _tasks(inputs: PlanInputs, erasures: Erasures, target: Target) -> Iterator[EraseTask]:
    """The tasks of a plan, each of as many segments as fit one."""
    plan = inputs.plan
    own = (one for one in erasures.of(plan.topic_partition) if one.id <= plan.searched.through)
    matcher = Matcher(erasures.secret, own)
    group: list[InputSegment] = []
    for segment in inputs.segments:
        if group and sum(one.source.bytes for one in (*group, segment)) > WHOLE_BYTES:
            yield EraseTask(inputs.only(group), matcher, target)
            group = []
        group.append(segment)
    yield EraseTask(inputs.only(group), matcher, target)


def _together(parts: Sequence[Result]) -> Result:
    first, *others = parts
    counts = first.counts.copy()
    for part in others:
        counts.update(part.counts)
    return Result(
        tuple(file for part in parts for file in part.files),
        counts,
        sum(part.fingerprint for part in parts),
        frozenset[str]().union(*(part.in_place for part in parts)),
        tuple(one for part in parts for one in part.destroyed),
        any(part.log_end_kept for part in parts),
    )
