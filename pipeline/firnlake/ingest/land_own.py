"""Lands files in a table with columns of its own: one that ``firn create --from`` made, or one that is adopted.

A file may hold records that the table has already, for example because it is a full export. They are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table
from pyiceberg.types import StringType

from firnlake.errors import ConflictError, RefusedError, UnavailableError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.keys import NO_KEY, Longs, codes_of, keys_of
from firnlake.ingest.adopt import Choice
from firnlake.ingest.append import Landed, append, by_topic_partition
from firnlake.ingest.formats import SUFFIXES, check_is_file
from firnlake.ingest.held_records import HeldRecords
from firnlake.ingest.own_columns import check_columns, check_unique, fitting, free_offsets, micros_of, sorted_micros
from firnlake.ingest.storable import read_storable
from firnlake.table.columns import ColumnRoles
from firnlake.table.topic_partition import TopicPartition

TRIES: Final = 10
"""Number of times that offsets are made, because other writers may take them before the commit."""
_END: Final = 2**63


def land_own(lake: Lake, identifier: str, paths: Sequence[Path]) -> Landed:
    """Append the records of ``paths`` that table ``identifier`` does not hold yet, as L0 segments, in one commit.

    If the table's offsets are made from times, so are those of the records; numbers that other records of the topic
    partition have are passed over. Raises RefusedError as ``read_storable`` does, for columns that do not fit the
    table, for an offset at which the table holds a different record, and if no free offset leaves the records of a key
    in the order of their times; UnavailableError if other writers keep appending at these offsets; and the errors of
    ``append``.
    """
    for path in paths:
        check_is_file(path, SUFFIXES)
    for _ in range(TRIES):
        landing = _Landing.on(lake.table(identifier), identifier)
        with lake.answering():
            files = [landing.new_records(path) for path in paths]
        try:
            landed = append(lake, identifier, landing.held.table, files, landing.held.check)
        except ConflictError:
            continue
        repeated = landed.repeated + landed.empty - landing.empty
        return replace(landed, repeated=repeated, empty=landing.empty, known=landing.known)
    raise UnavailableError(
        f"table {identifier}: other writers have appended records at the same offsets {TRIES} times in a row; "
        "nothing was landed; try again later"
    )


@dataclass
class _Landing:
    """A landing on one load of a table."""

    held: HeldRecords
    columns: ColumnRoles
    order: str
    """The column that orders the records of a file: the offset, or a column of times."""
    known: int = 0
    """Number of records that were left out because the table holds them."""
    empty: int = 0
    """Number of files without a record."""

    @classmethod
    def on(cls, table: Table, identifier: str) -> "_Landing":
        """Raises RefusedError for a table with further partition fields, because a file has one value of each field."""
        columns = ColumnRoles.of(table, identifier)
        names = {one.field_id: one.name for one in table.schema().fields}
        own = (columns.topic, columns.partition, columns.level)
        if others := [one.name for one in table.spec().fields if names.get(one.source_id) not in own]:
            raise RefusedError(
                f"table {identifier} is partitioned by {', '.join(others)} as well; allowed: a table that is "
                "partitioned by topic, partition and level alone, or appends by another Iceberg writer"
            )
        return cls(HeldRecords(table, identifier, columns), columns, columns.order or columns.offset)

    def new_records(self, path: Path) -> pa.Table:
        """The records of ``path`` that the table does not hold, with the columns of the table."""
        columns, schema = self.columns, self.held.table.schema()
        # Text that looks like a number stays text if the table has text.
        found = read_storable(path, [one.name for one in schema.fields if one.field_type == StringType()])
        found = found.drop_columns([name for name in self._made if name in found.column_names])
        self._check_file(found, path)
        choice = Choice(columns.key, self.order, columns.timestamp, columns.topic, columns.partition)
        check_columns(found, choice, path)
        records = fitting(found, schema, path)
        self.empty += not records.num_rows
        makes_offsets = self.order != columns.offset
        if not makes_offsets:
            check_unique(records, choice, self.held.identifier, path)
        parts = [records.slice(0, 0)]
        for part in by_topic_partition(records, columns.topic, columns.partition, self.order):
            topic = part[columns.topic][0].as_py() if columns.topic else columns.topic_name
            where = TopicPartition(topic, part[columns.partition][0].as_py() if columns.partition else 0)
            new = self._with_offsets(where, part, path) if makes_offsets else self._unknown(where, part, path)
            self.known += part.num_rows - new.num_rows
            self.held.add(where, new)
            parts.append(new)
        return pa.concat_tables(parts)

    @property
    def _made(self) -> tuple[str, ...]:
        """The columns that Firn fills. They are left out of a file that has them, such as a copy of a data file."""
        columns = self.columns
        return (columns.level, columns.delete_horizon, *({columns.offset} - {self.order}))

    def _check_file(self, found: pa.Table, path: Path) -> None:
        """Refuse columns that the table lacks, and NULL in columns that allow none."""
        schema = self.held.table.schema()
        allowed = [one.name for one in schema.fields if one.name not in self._made]
        if unknown := [name for name in found.column_names if name not in allowed]:
            raise RefusedError(
                f"file {path} has column {unknown[0]}, which table {self.held.identifier} lacks; allowed: "
                f"{', '.join(allowed)}"
            )
        for one in schema.fields:
            given = found.num_rows - found[one.name].null_count if one.name in found.column_names else 0
            if one.required and given < found.num_rows:
                raise RefusedError(
                    f"file {path}: column {one.name} has {given} values in {found.num_rows} records; "
                    "allowed: a value in each record"
                )

    def _unknown(self, where: TopicPartition, part: pa.Table, path: Path) -> pa.Table:
        """The records of ``part`` with offsets that no held record has; refuses an offset of a different record."""
        name = self.columns.offset
        offsets = part[name].to_pylist()
        asked = pa.array(offsets, pa.int64())
        held: dict[int, bytes] = {}
        for batch in self.held.at(where, range(offsets[0], offsets[-1] + 1)):
            same = batch.filter(pc.is_in(batch.column(name).cast(pa.int64()), asked))
            held |= zip(same.column(name).to_pylist(), self.held.contents(same), strict=True)
        for offset, content in zip(offsets, self.held.contents(part), strict=True):
            if held.get(offset, content) != content:
                raise RefusedError(
                    f"file {path}: table {self.held.identifier} holds a different record at offset {offset} of "
                    f"{where}; allowed: the same record, or another offset"
                )
        return part.take(pa.array([place for place, offset in enumerate(offsets) if offset not in held], pa.int64()))

    def _with_offsets(self, where: TopicPartition, part: pa.Table, path: Path) -> pa.Table:
        """The records of ``part`` that are not held, each with an offset that no held record has."""
        name, names = self.columns.offset, list(dict.fromkeys([self.columns.offset, self.order, *self.columns.key]))
        micros = sorted_micros(part[self.order], self.order, path)
        offsets = range(int(micros[0]), _END)
        schema = self.held.as_stored(part.slice(0, 0), names).schema
        there = _Timed.of(pa.Table.from_batches(self.held.at(where, offsets, names), schema), name, self.order)
        fresh = self._fresh(where, part, there.offsets[np.isin(there.micros, micros)])
        part, micros = part.take(fresh), micros[fresh]
        removed = pa.Table.from_batches(self.held.removed_tombstones(where, offsets, names), schema)
        held = there.and_(_Timed.of(removed, name, self.order))
        keys = pa.concat_tables([held.records, self.held.as_stored(part, names)])
        codes, _ = codes_of(_keys(keys, self.columns))
        held_codes, own_codes = np.split(codes, [held.records.num_rows])
        above = _highest_before(held_codes, held.micros, held.offsets, own_codes, micros)
        own = free_offsets(micros, held.offsets, own_codes, above)
        self._check_order(codes, np.append(held.micros, micros), np.append(held.offsets, own), len(held_codes), path)
        place = part.schema.get_field_index(name)
        return part.set_column(place, part.schema.field(place), pa.array(own, part.schema.field(place).type))

    def _fresh(self, where: TopicPartition, part: pa.Table, candidates: Longs) -> pa.Array:
        """The places in ``part`` of the records that are not held; only a record at ``candidates`` can be the same."""
        name, known = self.columns.offset, set[bytes]()
        if len(candidates):
            for batch in self.held.at(where, range(int(candidates.min()), int(candidates.max()) + 1)):
                same = batch.filter(pc.is_in(batch.column(name).cast(pa.int64()), pa.array(candidates)))
                known |= {*self.held.contents(same, but=[name])}
        contents = self.held.contents(part, but=[name])
        return pa.array([place for place, content in enumerate(contents) if content not in known], pa.int64())

    def _check_order(self, codes: Longs, micros: Longs, offsets: Longs, first: int, path: Path) -> None:
        """Refuse records if, by their ``offsets``, they are not in the order of their times among those of their key.

        The records up to ``first`` are held, and their order is not judged.
        """
        places = np.lexsort((offsets, codes))
        codes, micros, is_new = codes[places], micros[places], places >= first
        wrong = (codes[1:] == codes[:-1]) & (codes[1:] != NO_KEY) & (micros[1:] < micros[:-1])
        wrong &= is_new[1:] | is_new[:-1]
        if wrong.any():
            time = pa.scalar(int(micros[1:][wrong][0]), pa.timestamp("us"))
            raise RefusedError(
                f"file {path}: two records of one key have times so close, at {time} and just after it in column "
                f"{self.order}, that no offset between them is free, because many records have these times; allowed: "
                "records of one key with times that are further apart"
            )


@dataclass(frozen=True)
class _Timed:
    """Records of a table, with their offsets and with the microseconds from which those were made."""

    records: pa.Table
    micros: Longs
    offsets: Longs

    @classmethod
    def of(cls, records: pa.Table, offset: str, order: str) -> "_Timed":
        """``offset`` and ``order`` are columns. A time that another writer has left out counts as the offset."""
        offsets = records[offset].cast(pa.int64())
        return cls(records, pc.coalesce(micros_of(records[order]), offsets).to_numpy(), offsets.to_numpy())

    def and_(self, other: "_Timed") -> "_Timed":
        return _Timed(
            pa.concat_tables([self.records, other.records]),
            np.append(self.micros, other.micros),
            np.append(self.offsets, other.offsets),
        )


def _highest_before(held_codes: Longs, held_micros: Longs, offsets: Longs, codes: Longs, micros: Longs) -> Longs:
    """For each new record, with its key's code and its microseconds, the highest of the ``offsets`` of held records of
    its key that are not later; -1 if there is none."""
    highest = np.full(len(codes), -1, np.int64)
    near = np.flatnonzero(np.isin(held_codes, codes) & (held_codes != NO_KEY))
    keys, times = np.append(held_codes[near], codes), np.append(held_micros[near], micros)
    best = before = -1
    for place in np.lexsort((np.arange(len(keys)), times, keys)).tolist():
        if keys[place] != before:
            best, before = -1, int(keys[place])
        if place < len(near):
            best = max(best, int(offsets[near[place]]))
        elif before != NO_KEY:
            highest[place - len(near)] = best
    return highest


def _keys(records: pa.Table, columns: ColumnRoles) -> pa.ChunkedArray:
    batches = records.combine_chunks().to_batches()
    return pa.chunked_array([keys_of(batch, columns.key) for batch in batches], None if batches else pa.binary())
