"""Reads the old tombstones of one data file: those that `firn.erase.max.ms` makes a request of (C30)."""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.erase.digests import digests_of, key_bytes
from pipeline.lake.columns import Columns
from pipeline.lake.condition import Condition, mask
from pipeline.lake.data_files import DataFiles, OpenFile, Source
from pipeline.lake.hidden_records import DeletedFrom, HiddenRecords
from pipeline.lake.records import DECIDING_COLUMNS
from pipeline.lake.row_deletes import FileDeletes
from pipeline.lake.times import in_ms
from pipeline.lake.topic_partition import TopicPartition

_CONTROL, _TRANSACTIONAL = DECIDING_COLUMNS[:2]


class Tombstone(NamedTuple):
    """A tombstone: its timestamp (epoch milliseconds), the digest of its key, and its offset."""

    at_ms: int
    digest: bytes
    offset: int


@dataclass(frozen=True)
class Task:
    """A file to read, for its tombstones with timestamps up to ``until_ms``."""

    source: Source
    topic_partition: TopicPartition
    until_ms: int
    deletes: FileDeletes | None
    """The row-level deletes that may apply to it; None without any."""
    is_decided: bool
    """True when all transactions in it are known to be committed: it was cleaned (C10)."""


@dataclass(frozen=True)
class Tombstones:
    """The oldest tombstones of one file, or of several."""

    found: tuple[Tombstone, ...] = ()
    is_complete: bool = True
    """False when some had no room."""

    def oldest(self, limit: int) -> "Tombstones":
        """The oldest of them, ``limit`` at most."""
        if len(self.found) <= limit:
            return self
        return Tombstones(tuple(heapq.nsmallest(limit, self.found)), is_complete=False)


@dataclass(frozen=True)
class Reader:
    """Reads the files of one table, ``limit`` tombstones of each at most.

    A record that row-level deletes hide is no tombstone (C27), nor is a marker, nor a record of a transaction that no
    cleaning has decided yet. ``is_requested`` tells those that a request asks to erase already.
    """

    files: DataFiles
    columns: Columns
    condition: Condition
    timestamp: str
    has_transactions: bool
    secret: bytes = field(repr=False)
    is_requested: Callable[[TopicPartition, Tombstone], bool]
    limit: int

    def __call__(self, task: Task) -> Tombstones:
        """The tombstones that ``task`` asks for.

        Raises RefusedError for a file that can't be understood, UnavailableError when the store does not answer.
        """
        hidden = None
        if task.deletes is not None:
            hidden = HiddenRecords(self.files, [DeletedFrom(task.source, task.deletes)]).of(task.source)
        result = Tombstones()
        with self.files.opened(task.source) as file:
            for group in range(file.file.metadata.num_row_groups):
                place = file.first_record(group)
                # Values are large: the footer tells whether one of them is NULL.
                if self.condition.null_of and file.nulls(self.condition.null_of, group) == 0:
                    continue
                for batch in self._batches(file, group):
                    shown = None if hidden is None else ~hidden[place : place + len(batch)]
                    place += len(batch)
                    new = [one for one in self._of(batch, shown, task) if not self._is_known(task, one)]
                    both = Tombstones((*result.found, *new), result.is_complete)
                    result = both.oldest(self.limit)
        return result

    def _is_known(self, task: Task, one: Tombstone) -> bool:
        return self.is_requested(task.topic_partition, one)

    def _batches(self, file: OpenFile, group: int) -> Iterator[pa.RecordBatch]:
        names = self.columns
        transactional = (_CONTROL, _TRANSACTIONAL) if self.has_transactions else ()
        wanted = (*names.key, names.offset, self.timestamp, *self.condition.reads, *transactional)
        return file.batches(list(dict.fromkeys(wanted)), [group])

    def _of(self, batch: pa.RecordBatch, shown: NDArray[np.bool_] | None, task: Task) -> Iterator[Tombstone]:
        names = self.columns
        times = in_ms(pa.Table.from_batches([batch.select([self.timestamp])]))[self.timestamp].combine_chunks()
        meant = pc.and_(mask(self.condition.expression, batch), pc.less_equal(times, task.until_ms))
        if self.has_transactions:
            meant = pc.and_not(meant, pc.fill_null(batch.column(_CONTROL), fill_value=False))
            if not task.is_decided:
                meant = pc.and_not(meant, pc.fill_null(batch.column(_TRANSACTIONAL), fill_value=False))
        if shown is not None:
            meant = pc.and_(meant, pa.array(shown))
        tombstones, times = batch.filter(meant), times.filter(meant)
        offsets = tombstones.column(names.offset).to_pylist()
        digests = digests_of(key_bytes(tombstones, names.key), self.secret)
        for at_ms, digest, offset in zip(times.to_pylist(), digests, offsets, strict=True):
            if digest is not None:
                yield Tombstone(at_ms, digest, offset)
