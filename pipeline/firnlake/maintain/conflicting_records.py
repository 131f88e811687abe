"""Finds different records at one offset of a topic partition, of which a cleaning can't tell which one counts (C36)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from firnlake.errors import RefusedError
from firnlake.iceberg.branches import main_as_of
from firnlake.iceberg.catalog import Lake
from firnlake.table.columns import ColumnRoles
from firnlake.table.mendings import PastMending, taken_offsets
from firnlake.table.policies import samples_of
from firnlake.table.policy import Samples
from firnlake.table.record_contents import MOST_OFFSETS, contents_of, described, differing, own_columns, shown_digest
from firnlake.table.segment import Segment
from firnlake.table.segments import read
from firnlake.table.topic_partition import TopicPartition
from firnlake.table.visible_records import VisibleBatch, VisibleRecords, may_hold
from firnlake_expectations.wording import DIGEST, count


@dataclass(frozen=True)
class RecordCopy:
    """A record that readers see: its place in a data file (``position``, from 0) and the digest of its content."""

    offset: int
    segment: Segment
    position: int
    digest: str
    """Equal for copies of the same record."""
    row: pa.RecordBatch = field(repr=False, compare=False)
    """The record alone, with all columns of the table."""

    @property
    def path(self) -> str:
        """Path of the data file."""
        return self.segment.path


@dataclass(frozen=True)
class ConflictingRecords:
    """All copies of the different records at ``offset``, in the order of their files."""

    offset: int
    copies: tuple[RecordCopy, ...]
    shown: Mapping[str, str]
    """What ``firn.report.samples`` allows to show of each record, by digest."""
    differ_in: tuple[str, ...]
    """The columns in which the records differ."""

    def parted(self, keep: str) -> tuple[tuple[RecordCopy, ...], tuple[RecordCopy, ...]]:
        """The copies of the record that stays, which ``keep`` names by the path or the name of its file, or by its
        digest, with or without the prefix ``sha256:``; and all other copies.

        Raises RefusedError unless it names one record.
        """
        names = {keep, f"{DIGEST}{keep}"}
        kept = {one.digest for one in self.copies if names & {one.path, one.path.rpartition("/")[2], one.digest}}
        if len(kept) != 1:
            found = f"{len(kept)} different records" if kept else "no record"
            allowed = sorted({one.digest for one in self.copies} | ({one.path for one in self.copies} - {keep}))
            raise RefusedError(
                f"offset {self.offset} of {self.copies[0].segment.topic_partition}: --keep {keep} names {found}; "
                f"allowed: one of {', '.join(allowed)}"
            )
        staying = tuple(one for one in self.copies if one.digest in kept)
        return staying, tuple(one for one in self.copies if one.digest not in kept)


@dataclass(frozen=True)
class ScannedOffsets:
    """What snapshot ``snapshot_id`` of a table holds at ``offsets`` of one topic partition."""

    table: str
    snapshot_id: int
    topic_partition: TopicPartition
    offsets: range
    conflicts: tuple[ConflictingRecords, ...]
    newer_files: int
    """Number of data files that hold higher offsets."""
    samples: Samples
    """How much of a record may be shown."""
    mended: Mapping[int, PastMending]
    """The offsets of which earlier mendings have taken records, with the mending."""


def conflicts_at(
    lake: Lake, identifier: str, where: TopicPartition, offsets: range, as_of: int | None = None
) -> ScannedOffsets:
    """Find the conflicting records at ``offsets`` of ``where`` in snapshot ``as_of`` of main, by default the newest.

    Raises RefusedError for an unknown topic partition or snapshot, for offsets without a record unless a mending has
    taken it, for more than MOST_OFFSETS offsets, and for a file that may hold one of them and can't be read.
    """
    number = offsets.stop - offsets.start
    if number > MOST_OFFSETS:
        raise RefusedError(f"{count(number, 'offset')} at once; allowed: up to {MOST_OFFSETS:,}")
    with lake.answering():
        table, snapshot_id = main_as_of(lake.table(identifier), as_of)
        by_partition = read(table, identifier).by_partition
        if where not in by_partition:
            names = ", ".join(map(str, sorted(by_partition)[:20]))
            raise RefusedError(f"table {identifier} has no topic partition {where}; found: {names or 'none'}")
        own = by_partition[where]
        near = [one for one in own if one.records and may_hold((one.base_offset, one.last_offset), offsets)]
        columns, samples = ColumnRoles.of(table, identifier), samples_of(table.properties)
        found: dict[int, list[RecordCopy]] = defaultdict(list)
        for copy in _copies(VisibleRecords.of(table, columns.offset, near).at(offsets), columns):
            found[copy.offset].append(copy)
        mended = taken_offsets(table, str(where), offsets)
    if not found and not mended:
        raise RefusedError(
            f"table {identifier}: {where} has no record at offset {_named(offsets)}; allowed: an offset of a record "
            "that readers see"
        )
    different = (found[offset] for offset in sorted(found) if len({one.digest for one in found[offset]}) > 1)
    newer = sum(1 for one in own if one.last_offset >= offsets.stop)
    return ScannedOffsets(
        identifier,
        snapshot_id,
        where,
        offsets,
        tuple(_conflict(one, columns, samples) for one in different),
        newer,
        samples,
        mended,
    )


def _named(offsets: range) -> str:
    return str(offsets.start) if len(offsets) == 1 else f"{offsets.start} to {offsets.stop - 1}"


def _copies(found: Iterable[VisibleBatch], columns: ColumnRoles) -> Iterator[RecordCopy]:
    for segment, positions, batch in found:
        offsets = batch.column(columns.offset).to_pylist()
        contents = contents_of(columns, batch)
        for place, (offset, position, content) in enumerate(zip(offsets, positions, contents, strict=True)):
            yield RecordCopy(offset, segment, position, shown_digest(content), batch.slice(place, 1))


def _conflict(copies: Sequence[RecordCopy], columns: ColumnRoles, samples: Samples) -> ConflictingRecords:
    names = own_columns(columns, copies[0].row.schema)
    rows = {one.digest: one.row.select(names).to_pylist()[0] for one in copies}
    shown = dict(zip(rows, described(columns, list(rows.values()), samples), strict=True))
    in_order = sorted(copies, key=lambda one: (one.segment.sequence_number, one.path, one.position))
    return ConflictingRecords(copies[0].offset, tuple(in_order), shown, tuple(differing(list(rows.values()))))
