"""Lane `convert`: turns equality deletes into position deletes of the same records (C27).

The lane reads only those columns of the data files that the equality deletes compare, and writes no record. The data
files of a plan stay in the table. Each Iceberg partition gets one delete file per plan. If a partition has too many
older position delete files, the new file takes over the rows of those that name only inputs; the commit removes these.
"""

import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from pyiceberg.manifest import DataFile

from firnlake.compact.inputs import PlanInputs
from firnlake.compact.keep_or_drop import Outcome
from firnlake.compact.marks import Marks, StoredMarks, store
from firnlake.compact.rewrite import Rewritten, Target
from firnlake.compact.tasks import Attempt, by_bytes
from firnlake.iceberg.data_files import DataFiles
from firnlake.iceberg.deletes import DeleteFile, positions_by_file, write_positions
from firnlake.iceberg.files import MARKS
from firnlake.iceberg.keys import Longs
from firnlake.job.outcomes import ByPlan
from firnlake.table.segment import Segment

_NONE: Final[Longs] = np.empty(0, dtype=np.int64)


FoundMarks: TypeAlias = tuple[Mapping[str, StoredMarks], int]
"""The marks, by path, of segments with records that only equality deletes hide, and the number of records that any
row-level deletes hide."""


@dataclass(frozen=True)
class FindTask:
    """Find the records that equality deletes hide in some segments of a plan, and store their marks in ``folder``."""

    inputs: PlanInputs
    folder: str

    def __call__(self) -> FoundMarks:
        inputs = self.inputs
        flags = {one.path: inputs.hidden_by_values(one) for one in inputs.segments}
        marks = {path: Marks(len(own), taken_out=own) for path, own in flags.items() if own.any()}
        deleted = sum(inputs.sources[one.path].records - inputs.visible(one) for one in inputs.segments)
        return store(marks, f"{self.folder}/{uuid.uuid4()}{MARKS}", inputs.files) if marks else {}, deleted


@dataclass(frozen=True)
class ConvertTask:
    """Delete the found records of a plan by their positions."""

    inputs: PlanInputs
    found: Sequence[FoundMarks]
    target: Target

    def __call__(self) -> Rewritten:
        marks = {path: own for stored, _ in self.found for path, own in stored.items()}
        flags = {path: own.read(self.inputs.files).taken_out for path, own in marks.items()}
        positions = {path: np.flatnonzero(own) for path, own in flags.items() if own is not None}
        deletes = list[DataFile]()
        merged: list[str] = []
        for (spec_id, partition), neighbours in _by_iceberg_partition(self.inputs).items():
            former = _mergeable(self.inputs, neighbours)
            rows = _rows(self.inputs, positions, neighbours, former)
            merged += former
            if rows:
                path = f"{self.target.folder}/{uuid.uuid4()}-deletes.parquet"
                deletes.append(write_positions(self.inputs.files.io(path).new_output(path), spec_id, partition, rows))
        counts = Counter({Outcome.DELETED: sum(deleted for _, deleted in self.found)})
        in_place = frozenset(one.path for one in self.inputs.segments)
        return Rewritten((), counts, in_place=in_place, deletes=tuple(deletes), merged=tuple(merged))


def converted(attempt: Attempt) -> ByPlan[Rewritten]:
    """Compact plans of lane `convert`."""
    with attempt.marks_folder() as folder:
        # The files of an Iceberg partition share their deletes.
        tasks = [
            FindTask(one.only(group), folder)
            for one in attempt.plans
            for neighbours in _by_iceberg_partition(one).values()
            for group in by_bytes(neighbours)
        ]
        found, failed = attempt.run("find", tasks)
        known = [(one, found[one.plan.id]) for one in attempt.plans if one.plan.id in found]
        done, not_written = attempt.run("convert", [ConvertTask(one, own, attempt.target) for one, own in known])
    return {plan_id: result for plan_id, (result,) in done.items()}, failed | not_written


def _by_iceberg_partition(inputs: PlanInputs) -> dict[tuple[int, tuple[Any, ...]], list[Segment]]:
    """The segments by partition spec and partition values, which they share with their delete files."""
    groups: dict[tuple[int, tuple[Any, ...]], list[Segment]] = defaultdict(list)
    for one in inputs.segments:
        source = inputs.sources[one.path]
        groups[source.spec_id, source.partition].append(one)
    return groups


def _rows(
    inputs: PlanInputs,
    positions: Mapping[str, Longs],
    segments: Sequence[Segment],
    former: Mapping[str, Mapping[str, Longs]],
) -> dict[str, Longs]:
    """The rows of a delete file, as positions by data file. They include the rows of the ``former`` delete files, which
    it replaces, but only for the data files to which these apply."""
    by_path = {}
    for segment in segments:
        applying = frozenset(one.path for one in inputs.deletes_of(segment))
        parts = [rows[segment.path] for path, rows in former.items() if path in applying and segment.path in rows]
        every: Longs = np.unique(np.concatenate([positions.get(segment.path, _NONE), *parts]))
        # Readers ignore positions past the end of a file.
        every = every[every < inputs.sources[segment.path].records]
        if len(every):
            by_path[segment.path] = every
    return by_path


def _mergeable(inputs: PlanInputs, segments: Sequence[Segment]) -> dict[str, dict[str, Longs]]:
    """The position delete files of one Iceberg partition that the plan merges into its own: by path, their rows as
    positions by data file. Empty unless the partition has too many position delete files.

    A delete file that names a data file other than ``segments`` is not merged.
    """
    deletes = {delete for one in segments for delete in inputs.deletes_of(one) if not delete.is_equality}
    first = inputs.sources[segments[0].path]
    of_place = [
        one for one in deletes if (one.source.spec_id, one.source.partition) == (first.spec_id, first.partition)
    ]
    if len(of_place) <= inputs.plan.position_deletes_max:
        return {}
    known = frozenset(one.path for one in segments)
    in_order = sorted(of_place, key=lambda one: one.path)
    named = {one.path: rows_named(inputs.files, one, known) for one in in_order}
    return {path: rows for path, rows in named.items() if rows is not None}


def rows_named(files: DataFiles, delete: DeleteFile, known: Collection[str]) -> dict[str, Longs] | None:
    """The rows of ``delete``, as positions by data file; None if it names a data file that is not ``known``."""
    parts: dict[str, list[Longs]] = defaultdict(list)
    for path, own in positions_by_file(files, delete):
        if path not in known:
            return None
        parts[path].append(own)
    return {path: np.concatenate(pieces) for path, pieces in parts.items()}
