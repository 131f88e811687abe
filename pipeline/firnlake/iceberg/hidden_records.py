"""Records that row-level deletes hide (C27): readers of the snapshot do not see them, so compaction ignores them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock

import numpy as np
import pyarrow as pa

from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.iceberg.delete_files import compared, positions_by_file, values
from firnlake.iceberg.deletes import DeleteFile, FileDeletes
from firnlake.iceberg.keys import NO_KEY, Flags, Longs, bytes_of, codes_of, joined, places_in


class HiddenRecords:
    """Flags that mark hidden records, by data file. Every delete file is read once; threads may share one object."""

    def __init__(self, files: DataFiles, deletes: Mapping[str, FileDeletes]) -> None:
        """``deletes`` are the row-level deletes that may apply, by path of the data file."""
        self._files = files
        self._deletes = deletes
        self._lock = Lock()
        self._flags: dict[str, tuple[Flags, Flags]] = {}

    def of(self, source: Source) -> Flags | None:
        """A flag for each record of the data file, in file order, true for hidden records; None if no deletes apply.

        Raises RefusedError for a delete file that can't be understood, UnavailableError when the store does not answer.
        """
        return self._found(source)[0] if source.path in self._deletes else None

    def by_values_only(self, source: Source) -> Flags:
        """A flag for each record of the data file, true if an equality delete hides it and no position delete does.
        Raises as ``of`` does."""
        if source.path not in self._deletes:
            return np.zeros(source.records, dtype=np.bool_)
        hidden, by_position = self._found(source)
        return hidden & ~by_position

    def _found(self, source: Source) -> tuple[Flags, Flags]:
        """Flags of the hidden records, and of those that position deletes hide."""
        with self._lock:
            if source.path not in self._flags:
                by_position = np.zeros(source.records, dtype=np.bool_)
                for places in self._positions.get(source.path, ()):
                    # Readers ignore positions past the end of a file.
                    by_position[places[places < source.records]] = True
                self._flags[source.path] = (self._with_values(source, by_position), by_position)
            return self._flags[source.path]

    @cached_property
    def _positions(self) -> Mapping[str, Sequence[Longs]]:
        """Deleted positions by path of the data file."""
        reached: dict[DeleteFile, set[str]] = defaultdict(set)
        for path, own in self._deletes.items():
            for delete in own.files:
                if not delete.is_equality:
                    reached[delete].add(path)
        by_path: dict[str, list[Longs]] = defaultdict(list)
        for delete, paths in reached.items():
            for path, places in positions_by_file(self._files, delete):
                if path in paths:
                    by_path[path].append(places)
        return by_path

    def _with_values(self, source: Source, by_position: Flags) -> Flags:
        """Flags of the records that are hidden ``by_position`` or by equality deletes newer than the data file."""
        deletes = self._deletes[source.path]
        groups = {_group(delete) for delete in deletes.files if delete.is_equality}
        flags = by_position.copy() if groups else by_position
        for group in groups:
            deleted, start = self._values[group], 0
            for batch in self._files.batches(source, deleted.names):
                newest = deleted.newest_of(_rows(batch))
                flags[start : start + batch.num_rows] |= newest > deletes.sequence_number
                start += batch.num_rows
        return flags

    @cached_property
    def _values(self) -> Mapping[tuple[str, tuple[int, ...]], "_DeletedValues"]:
        """Deleted values by the scope of their delete files and the field ids of the columns that these compare."""
        groups: dict[tuple[str, tuple[int, ...]], list[DeleteFile]] = defaultdict(list)
        deletes = {delete for own in self._deletes.values() for delete in own.files if delete.is_equality}
        for delete in sorted(deletes, key=lambda one: (one.sequence_number, one.path)):
            groups[_group(delete)].append(delete)
        return {group: _DeletedValues.read(self._files, own) for group, own in groups.items()}


def _group(delete: DeleteFile) -> tuple[str, tuple[int, ...]]:
    return delete.scope, tuple(sorted(delete.equality_ids or ()))


@dataclass(frozen=True)
class _DeletedValues:
    """The distinct rows, in the columns ``names``, of several equality delete files.

    ``numbers`` holds, for each row, the data sequence number of the newest delete of that row.
    """

    names: Sequence[str]
    rows: pa.Array
    numbers: Longs

    @classmethod
    def read(cls, files: DataFiles, deletes: Sequence[DeleteFile]) -> "_DeletedValues":
        """Read ``deletes``, which all compare the same columns."""
        batches: list[pa.Array] = []
        numbers: list[Longs] = [np.empty(0, dtype=np.int64)]
        for delete in deletes:
            for batch in values(files, delete):
                batches.append(_rows(batch))
                numbers.append(np.full(batch.num_rows, delete.sequence_number, dtype=np.int64))
        codes, rows = codes_of(pa.chunked_array(batches, pa.large_binary()))
        newest = np.zeros(len(rows), dtype=np.int64)
        np.maximum.at(newest, codes, np.concatenate(numbers))
        return cls(compared(files, deletes[0]), rows, newest)

    def newest_of(self, rows: pa.Array) -> Longs:
        """The data sequence number of the newest delete of each of ``rows``; -1 for a row without a delete."""
        places = places_in(rows, self.rows)
        return np.where(places == NO_KEY, np.int64(-1), np.append(self.numbers, -1)[places])


def _rows(batch: pa.RecordBatch) -> pa.Array:
    """The bytes of each row. NULL equals NULL, as in an equality delete, and differs from every value."""
    valid = [column.is_valid().cast(pa.int8()) for column in batch.columns]
    return joined([*valid, *(_filled(column) for column in batch.columns)])


def _filled(column: pa.Array) -> pa.Array:
    held = bytes_of(column)
    return held.fill_null(pa.scalar(b"", pa.large_binary())) if held.null_count else held
