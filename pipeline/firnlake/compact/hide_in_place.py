"""Hide records in place by position delete files instead of new segments (lanes `hide` and `convert`).

The data files of a plan stay in the table. Each Iceberg partition gets one delete file per plan. If a partition has too
many older delete files, the new file takes over the rows of those that name only inputs; the commit removes these.
"""

import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np

from firnlake.compact.inputs import InputSegment, PlanInputs
from firnlake.compact.keep_or_drop import Outcome
from firnlake.compact.rewrite import Target
from firnlake.compact.tasks import Result
from firnlake.iceberg.data_files import DataFiles
from firnlake.iceberg.deleted_rows import PATH, POS, positions
from firnlake.iceberg.keys import Flags, Longs
from firnlake.iceberg.position_deletes import PositionDeleteWriter, WrittenDeletes
from firnlake.iceberg.row_deletes import DeleteFile

_NONE: Final[Longs] = np.empty(0, dtype=np.int64)


def places(hidden: Flags | None, flags: Flags) -> Longs:
    """The places in the file of the flagged visible records. ``flags`` has an element per visible record, ``hidden``
    an element per record, true for a hidden record; None means that no record is hidden."""
    if hidden is None:
        return np.flatnonzero(flags)
    visible: Longs = np.flatnonzero(~hidden)
    return visible[flags]


def by_iceberg_partition(segments: Sequence[InputSegment]) -> dict[tuple[int, tuple[Any, ...]], list[InputSegment]]:
    """``segments`` by partition spec and partition values, which they share with their delete files."""
    groups: dict[tuple[int, tuple[Any, ...]], list[InputSegment]] = defaultdict(list)
    for one in segments:
        groups[one.source.spec_id, one.source.partition].append(one)
    return groups


def hide(
    inputs: PlanInputs, positions: Mapping[str, Longs], target: Target, *, superseded: int = 0, deleted: int = 0
) -> Result:
    """Hide the records at ``positions`` (sorted, by data file) of a plan, which no position delete has hidden before.

    ``superseded`` of these records were visible, and are hidden because their key has a newer record. ``deleted`` is
    the number of input records that deletes of any kind hid before the plan.
    """
    deletes: list[WrittenDeletes] = []
    merged: list[str] = []
    for (spec_id, partition), neighbours in by_iceberg_partition(inputs.segments).items():
        former = _mergeable(inputs, neighbours)
        rows = _rows(positions, neighbours, former)
        merged += former
        if rows:
            deletes.append(_written(inputs, target, spec_id, partition, rows))
    counts = Counter({Outcome.SUPERSEDED: superseded, Outcome.DELETED: deleted})
    in_place = frozenset(one.path for one in inputs.segments)
    return Result((), counts, 0, in_place, deletes=tuple(deletes), merged=tuple(merged))


def _written(
    inputs: PlanInputs, target: Target, spec_id: int, partition: tuple[Any, ...], rows: Mapping[str, Longs]
) -> WrittenDeletes:
    path = f"{target.folder}/{uuid.uuid4()}-deletes.parquet"
    with PositionDeleteWriter(inputs.files.io(path).new_output(path), spec_id, partition) as writer:
        for name in sorted(rows):
            writer.write(name, rows[name])
        return writer.close()


def _rows(
    positions: Mapping[str, Longs], segments: Sequence[InputSegment], former: Mapping[str, Mapping[str, Longs]]
) -> dict[str, Longs]:
    """The rows of a delete file, as positions by data file. They include the rows of the ``former`` delete files, which
    it replaces, but only for the data files to which these apply."""
    by_path = {}
    for segment in segments:
        applying = frozenset(one.path for one in segment.deletes.files) if segment.deletes else frozenset[str]()
        parts = [rows[segment.path] for path, rows in former.items() if path in applying and segment.path in rows]
        every: Longs = np.unique(np.concatenate([positions.get(segment.path, _NONE), *parts]))
        # Readers ignore positions past the end of a file.
        every = every[every < segment.records]
        if len(every):
            by_path[segment.path] = every
    return by_path


def _mergeable(inputs: PlanInputs, segments: Sequence[InputSegment]) -> dict[str, dict[str, Longs]]:
    """The position delete files of one Iceberg partition that the plan merges into its own: by path, their rows as
    positions by data file. Empty unless the partition has too many position delete files.

    A delete file that names a data file other than ``segments`` is not merged. If the plan lists all live files (lane
    `hide`), only names of live files count.
    """
    deletes = {delete for one in segments if one.deletes for delete in one.deletes.files if not delete.is_equality}
    place = (segments[0].source.spec_id, segments[0].source.partition)
    of_place = [one for one in deletes if (one.source.spec_id, one.source.partition) == place]
    if len(of_place) <= inputs.plan.position_deletes_max:
        return {}
    known, others = frozenset(one.path for one in segments), None
    if inputs.plan.comparison:
        others = frozenset((*inputs.plan.comparison.beside, *(one.path for one in inputs.segments))) - known
    in_order = sorted(of_place, key=lambda one: one.path)
    named = {one.path: rows_named(inputs.files, one, known, others) for one in in_order}
    return {path: rows for path, rows in named.items() if rows is not None}


def rows_named(
    files: DataFiles, delete: DeleteFile, known: Collection[str], others: Collection[str] | None = None
) -> dict[str, Longs] | None:
    """The rows of ``delete``, as positions by data file; None if it names a data file that is not ``known``.

    If ``others`` is given, it must be all other live files. Rows about files in neither set are then ignored, because
    these files are no longer in the table.
    """
    parts: dict[str, list[Longs]] = defaultdict(list)
    for batch in positions(files, delete):
        encoded = batch.column(PATH).dictionary_encode()
        codes, held = encoded.indices.to_numpy(), batch.column(POS).to_numpy()
        for code, path in enumerate(encoded.dictionary.to_pylist()):
            if path in known:
                parts[path].append(held[codes == code])
            elif others is None or path in others:
                return None
    return {path: np.concatenate(pieces) for path, pieces in parts.items()}
