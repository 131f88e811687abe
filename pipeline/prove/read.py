"""Reads one file for the records of requested keys: data files, delete files, and files that nothing refers to (C30).

A data file is read as it is: records that row-level deletes hide are in it all the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import FileFormat

from pipeline.erase.digests import key_bytes
from pipeline.errors import FirnError, UnavailableError
from pipeline.lake import checked_parquet
from pipeline.lake.columns import Columns
from pipeline.lake.data_files import DataFiles, Source
from pipeline.lake.topic_partition import TopicPartition
from pipeline.prove.known_key import KnownKey
from pipeline.prove.wanted import NOTHING, Found, Wanted

_FIELD_ID: Final = b"PARQUET:field_id"
_ROW_OF_DELETE: Final = 2147483544
"""Field id of the deleted row in a position delete file (Iceberg spec, "Reserved Field IDs")."""


@dataclass(frozen=True)
class Task:
    """A file to look into. ``place`` is None where its records may be of several topic partitions, or of unknown ones.

    ``by_offset`` is false where any record of a key is meant, whatever its offset: a delete file holds keys alone.
    """

    source: Source
    place: TopicPartition | None
    by_offset: bool = True
    is_listed: bool = True
    """False for a file that nothing refers to: its records are counted by its own footer."""


@dataclass(frozen=True)
class Answer:
    """What a file holds; ``problem`` where that can't be told. ``gone`` when the file is not there."""

    found: Found = NOTHING
    problem: str | None = None
    gone: bool = False


@dataclass(frozen=True)
class Reader:
    """Looks into the files of one table. Pickled into tasks."""

    files: DataFiles
    columns: Columns
    wanted: Wanted
    control: str | None = None
    """The column that is true for control records, which have no key (C10); None where the table has none."""
    key: KnownKey | None = None
    """The only key that is wanted, where whoever asks brings it."""

    def __call__(self, task: Task) -> Answer:
        """What the file of ``task`` holds; raises UnavailableError when the store does not answer."""
        try:
            return self._answer(task)
        except UnavailableError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return Answer(problem="it is gone, so nobody can tell what it held", gone=True)
            raise
        except FirnError as error:
            return Answer(problem=str(error))

    def _answer(self, task: Task) -> Answer:
        if task.source.format != FileFormat.PARQUET.value:
            return Answer(problem=f"it is an {task.source.format} file, which Firn can't read")
        if task.is_listed and task.by_offset:
            return Answer(self._records(task))
        held = self._footer(task)
        if isinstance(held, Answer):
            return held
        records, ids = held
        if _ROW_OF_DELETE in ids:
            return Answer(problem="it is a position delete file that holds deleted records")
        keys = {self.files.schema.find_field(name).field_id for name in self.columns.key}
        if keys.isdisjoint(ids):
            known = ids & {field.field_id for field in self.files.schema.fields}
            return Answer(problem="it has no column of the key, but others of the table") if known else Answer()
        if not keys <= ids:
            return Answer(problem="it holds only some of the columns that make a key")
        has_offset = self.files.schema.find_field(self.columns.offset).field_id in ids
        source = Source(task.source.path, task.source.bytes, records, task.source.spec_id, task.source.partition)
        return Answer(self._records(Task(source, task.place, by_offset=has_offset and task.by_offset)))

    def _footer(self, task: Task) -> tuple[int, frozenset[int]] | Answer:
        """Records and field ids of a Parquet file."""
        path = task.source.path
        try:
            with self.files.io(path).new_input(path).open() as stream:
                file = checked_parquet.open_file(stream)
                ids = _ids(file.schema_arrow, self.files)
                return file.metadata.num_rows, ids
        except FileNotFoundError:
            return Answer(gone=True)
        except pa.ArrowException as error:
            return Answer(problem=f"it is not readable as Parquet: {' '.join(str(error).split())}")

    def _records(self, task: Task) -> Found:
        columns = self.columns
        apart = (columns.topic, columns.partition) if task.place is None else ()
        beside = (columns.offset, self.control, *apart) if task.by_offset else ()
        hits = NOTHING
        for batch in self._batches(task.source, list(dict.fromkeys([*columns.key, *filter(None, beside)]))):
            keys = key_bytes(batch, columns.key)
            if self.key:
                keys = self.key.among(keys)
            if not task.by_offset:
                hits += self.wanted.find(keys)
                continue
            if self.control:
                keys = pc.if_else(pc.fill_null(batch.column(self.control), fill_value=False), None, keys)
            offsets = batch.column(columns.offset).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
            hits += self.wanted.find(keys, offsets, [task.place] if task.place else self._places(batch))
        return hits

    def _batches(self, source: Source, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The records of ``source``, without the row groups that can't hold the key."""
        with self.files.opened(source) as file:
            yield from file.batches(columns, self.key.row_groups(file) if self.key else None)

    def _places(self, batch: pa.RecordBatch) -> Sequence[TopicPartition] | None:
        """The topic partition of every record; None where the file does not tell, so that any is possible."""
        names = self.columns
        topics = batch.column(names.topic).to_pylist() if names.topic else [names.topic_name] * len(batch)
        partitions = batch.column(names.partition).to_pylist() if names.partition else [0] * len(batch)
        if None in topics or None in partitions or not topics:
            return None
        return [TopicPartition(*place) for place in zip(topics, partitions, strict=True)]


def _ids(schema: pa.Schema, files: DataFiles) -> frozenset[int]:
    """Field ids of a file's columns; by their names where it has none."""
    own = {int(field.metadata[_FIELD_ID]) for field in schema if field.metadata and _FIELD_ID in field.metadata}
    if own:
        return frozenset(own)
    known: dict[str, Any] = {field.name: field.field_id for field in files.schema.fields}
    return frozenset(known[name] for name in schema.names if name in known)
