"""Lane `convert`: turns equality deletes into position deletes of the same records (C27).

The lane reads only those columns of the data files that the equality deletes compare, and writes no record. The data
files of a plan stay in the table. Each Iceberg partition gets one delete file per plan. If a partition has too many
older position delete files, the new file takes over the rows of those that name only inputs; the commit removes these.
"""

import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import numpy as np

from firnlake.compact.inputs import PlanInputs
from firnlake.compact.rewrite import Target
from firnlake.compact.tasks import Attempt
from firnlake.iceberg.data_files import DataFiles
from firnlake.iceberg.deletes import DeleteFile, positions_by_file, write_positions
from firnlake.iceberg.keys import Longs
from firnlake.job.change import Change
from firnlake.job.outcomes import ByPlan
from firnlake.table.history import Counts
from firnlake.table.segment import Segment


def _convert(target: Target, inputs: PlanInputs) -> Change:
    """Delete by their positions the records that equality deletes hide in segments of one Iceberg partition."""
    first = inputs.sources[inputs.segments[0].path]
    positions = {one.path: np.flatnonzero(inputs.hidden_by_values(one)) for one in inputs.segments}
    former = _mergeable(inputs, (first.spec_id, first.partition))
    rows = _rows(inputs, positions, former)
    path = f"{target.folder}/{uuid.uuid4()}-deletes.parquet"
    output = inputs.files.io(path).new_output(path)
    hidden = sum(inputs.sources[one.path].records - inputs.visible(one) for one in inputs.segments)
    return Change(
        plan=inputs.plan,
        counts=Counts(deleted=hidden),
        deletes=(write_positions(output, first.spec_id, first.partition, rows),) if rows else (),
        merged=tuple(former),
        in_place=frozenset(positions),
    )


def converted(attempt: Attempt) -> ByPlan[Change]:
    """Compact plans of lane `convert`."""
    # The files of an Iceberg partition share their deletes.
    work = partial(_convert, attempt.target)
    tasks = [(one.only(group), work) for one in attempt.plans for group in _by_iceberg_partition(one)]
    parts, failed = attempt.run("convert", tasks)
    plans = {one.plan.id: one.plan for one in attempt.plans}
    return {plan_id: Change.joined(plans[plan_id], own) for plan_id, own in parts.items()}, failed


def _by_iceberg_partition(inputs: PlanInputs) -> Collection[list[Segment]]:
    """The segments with the same partition spec and partition values, which they share with their delete files."""
    groups: dict[tuple[int, tuple[Any, ...]], list[Segment]] = defaultdict(list)
    for one in inputs.segments:
        source = inputs.sources[one.path]
        groups[source.spec_id, source.partition].append(one)
    return groups.values()


def _rows(
    inputs: PlanInputs, positions: Mapping[str, Longs], former: Mapping[str, Mapping[str, Longs]]
) -> dict[str, Longs]:
    """The rows of a delete file, as positions by data file. They include the rows of the ``former`` delete files, which
    it replaces, but only for the data files to which these apply."""
    by_path = {}
    for segment in inputs.segments:
        applying = frozenset(one.path for one in inputs.deletes_of(segment))
        parts = [rows[segment.path] for path, rows in former.items() if path in applying and segment.path in rows]
        every: Longs = np.unique(np.concatenate([positions[segment.path], *parts]))
        # Readers ignore positions past the end of a file.
        every = every[every < inputs.sources[segment.path].records]
        if len(every):
            by_path[segment.path] = every
    return by_path


def _mergeable(inputs: PlanInputs, where: tuple[int, tuple[Any, ...]]) -> dict[str, dict[str, Longs]]:
    """The position delete files of the Iceberg partition ``where`` that the plan merges into its own: by path, their
    rows as positions by data file. Empty unless the partition has too many position delete files.

    A delete file that names a data file other than the segments is not merged.
    """
    deletes = {delete for one in inputs.segments for delete in inputs.deletes_of(one) if not delete.is_equality}
    own = [one for one in deletes if (one.source.spec_id, one.source.partition) == where]
    if len(own) <= inputs.plan.position_deletes_max:
        return {}
    known = frozenset(one.path for one in inputs.segments)
    in_order = sorted(own, key=lambda one: one.path)
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
