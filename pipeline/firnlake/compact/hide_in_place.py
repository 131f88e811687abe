"""Hides records where they are: position delete files instead of new segments (lanes `hide` and `convert`).

The data files of a plan stay in the table. Each Iceberg partition gets one delete file per plan; where older ones are
many and name only inputs of the plan, it takes their rows over, and they leave with the same commit.
"""

import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from firnlake.compact.inputs import InputSegment, PlanInputs
from firnlake.compact.keep_or_drop import Outcome
from firnlake.compact.rewrite import Target
from firnlake.compact.tasks import Result, failure, perform
from firnlake.engine.engine import Engine
from firnlake.errors import FirnError
from firnlake.iceberg.data_files import DataFiles
from firnlake.iceberg.deleted_rows import PATH, POS, positions
from firnlake.iceberg.keys import Flags, Longs
from firnlake.iceberg.position_deletes import PositionDeleteWriter, WrittenDeletes
from firnlake.iceberg.row_deletes import DeleteFile

_NONE: Final[Longs] = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Hiding:
    """The sorted ``positions`` in each file, by path, that a plan is the first to hide by position deletes.

    ``superseded`` of these records were visible, and go because a newer record of their key is there. ``deleted`` is
    the number of records of all inputs that were hidden before, by whatever deletes.
    """

    inputs: PlanInputs
    positions: Mapping[str, Longs] = field(repr=False)
    superseded: int = 0
    deleted: int = 0


def places(hidden: Flags | None, flags: Flags) -> Longs:
    """The places in a file of the visible records with ``flags``; ``hidden`` flags the hidden ones among all records,
    None where none is."""
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
    hidings: Sequence[Hiding], target: Target, engine: Engine, title: str
) -> tuple[dict[str, Result], dict[str, FirnError]]:
    """Write the delete files of ``hidings``; their results, and the errors of the others, by plan id."""
    tasks = [_HideTask(one, target) for one in hidings]
    weights = [sum(map(len, one.positions.values())) for one in hidings]
    written = engine.map(perform, tasks, weights=weights, title=f"hide {title}")
    results: dict[str, Result] = {}
    failed: dict[str, FirnError] = {}
    for one, result in zip(hidings, written, strict=True):
        if isinstance(result, Result):
            results[one.inputs.plan.id] = result
        else:
            failed[one.inputs.plan.id] = failure(one.inputs, result)
    return results, failed


@dataclass(frozen=True)
class _HideTask:
    """Write the delete files of one plan."""

    hiding: Hiding
    target: Target

    def __call__(self) -> Result:
        hiding = self.hiding
        segments = hiding.inputs.segments
        deletes: list[WrittenDeletes] = []
        merged: list[str] = []
        for (spec_id, partition), neighbours in by_iceberg_partition(segments).items():
            former = _mergeable(hiding.inputs, neighbours)
            rows = _rows(hiding, neighbours, former)
            merged += former
            if rows:
                deletes.append(self._written(spec_id, partition, rows))
        counts = Counter({Outcome.SUPERSEDED: hiding.superseded, Outcome.DELETED: hiding.deleted})
        in_place = frozenset(one.path for one in segments)
        return Result((), counts, 0, in_place, deletes=tuple(deletes), merged=tuple(merged))

    def _written(self, spec_id: int, partition: tuple[Any, ...], rows: Mapping[str, Longs]) -> WrittenDeletes:
        path = f"{self.target.folder}/{uuid.uuid4()}-deletes.parquet"
        output = self.hiding.inputs.files.io(path).new_output(path)
        with PositionDeleteWriter(output, spec_id, partition) as writer:
            for name in sorted(rows):
                writer.write(name, rows[name])
            return writer.close()


def _rows(
    hiding: Hiding, segments: Sequence[InputSegment], former: Mapping[str, Mapping[str, Longs]]
) -> dict[str, Longs]:
    """The rows of a delete file, as positions by data file; those of the ``former`` delete files that it replaces are
    included where they apply."""
    by_path = {}
    for segment in segments:
        applying = frozenset(one.path for one in segment.deletes.files) if segment.deletes else frozenset[str]()
        parts = [rows[segment.path] for path, rows in former.items() if path in applying and segment.path in rows]
        every: Longs = np.unique(np.concatenate([hiding.positions.get(segment.path, _NONE), *parts]))
        # Readers ignore what is past the end of a file.
        every = every[every < segment.records]
        if len(every):
            by_path[segment.path] = every
    return by_path


def _mergeable(inputs: PlanInputs, segments: Sequence[InputSegment]) -> dict[str, dict[str, Longs]]:
    """The position delete files of one Iceberg partition that the plan merges into its own, with their rows: positions
    by data file, by path of the delete file. None unless these delete files are too many.

    One that names another data file than ``segments`` stays. Where the plan lists all live files (lane `hide`), rows
    about files that have gone keep no delete file.
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
    """The rows of ``delete``, as positions by data file; None when it names a data file that is not ``known``.

    With ``others``, all live files beside the known ones, only these count: rows about files that have gone are left
    out.
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
