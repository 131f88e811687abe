"""Lists what mendings took from main: by the summaries of their snapshots, and by what the branch still keeps (C36)."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from firnlake.iceberg.branches import MENDED, at_snapshot, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.table.columns import ColumnRoles
from firnlake.table.mendings import PastMending, TakenRecords, copies_prefix, mended_entries, past_mendings
from firnlake.table.policies import samples_of
from firnlake.table.record_contents import contents_of, described, own_columns, shown_digest
from firnlake.table.segment import Segment
from firnlake.table.segments import facts, read, read_entries
from firnlake_expectations.table_report import MendedPart
from firnlake_expectations.wording import count

Outcome: TypeAlias = Literal["kept", "dropped", "lost"]
"""The branch keeps it; the branch had it, until somebody dropped it there; or the store had lost it before."""

FEW: Final = 5
"""Maximum number of offsets that a part names, besides the last one."""


@dataclass(frozen=True)
class MendedFile:
    """A data file that a mending took."""

    path: str
    outcome: Outcome
    segment: Segment | None
    """What metadata says of it; None if no snapshot has it any more, or if its topic partition is unknown."""


@dataclass(frozen=True)
class MendedRecord:
    """A record that a mending took."""

    topic_partition: str
    offset: int
    paths: tuple[str, ...]
    """The data file that held it; several if the mending took records at this offset from several files; none if the
    mending's summaries have expired."""
    digest: str | None
    """None if the branch no longer has the record."""
    shown: str = ""
    """What ``firn.report.samples`` allows to show of it."""


@dataclass(frozen=True)
class MendedParts:
    """All that one mending took."""

    mending: PastMending | None
    """None for what is on the branch without a summary that tells of it: the summaries have expired, or another writer
    added it."""
    files: tuple[MendedFile, ...]
    records: tuple[MendedRecord, ...]


def mended(lake: Lake, identifier: str) -> list[MendedParts]:
    """What mendings took from main of table ``identifier``, newest mending first, as far as summaries and the branch
    tell. Raises RefusedError for an unknown table, and for copies of records that can't be read."""
    with lake.answering():
        table = lake.table(identifier)
        branch = _Branch.of(table, identifier)
        listed = [
            MendedParts(one, tuple(_files(table, identifier, one, branch)), tuple(branch.records(one)))
            for one in past_mendings(table)
        ]
        files = (MendedFile(path, "kept", branch.segments.get(path)) for path, by in branch.held.items() if by is None)
        rest = MendedParts(None, tuple(files), tuple(branch.records(None)))
    return [*listed, rest] if rest.files or rest.records else listed


def mended_parts(table: Table, identifier: str) -> Iterator[MendedPart]:
    """As ``mended``, but from metadata alone: a part for each file, and for each topic partition that lost records.

    Raises RefusedError when another tool uses the branch's name.
    """
    branch = _Branch.of(table, identifier)
    for one in past_mendings(table):
        for file in _files(table, identifier, one, branch):
            yield _part(one, file.path, file.segment, file.outcome)
        by_place: dict[str, list[TakenRecords]] = defaultdict(list)
        for taken in one.parts.records:
            by_place[taken.topic_partition].append(taken)
        for where, own in by_place.items():
            offsets = sorted(offset for taken in own for offset in taken.offsets)
            more = f" and {count(len(own) - 1, 'more file')}" if len(own) > 1 else ""
            outcome: Outcome = "kept" if one in branch.copies else "dropped"
            yield MendedPart(
                one.at_ms,
                one.snapshot_id,
                f"{count(len(offsets), 'record')} of {own[0].path}{more}",
                where,
                _few(offsets),
                len(offsets),
                outcome,
            )
    untold = [path for path, by in branch.held.items() if by is None]
    for path in (*untold, *(file.file_path for file in branch.copies.get(None, ()))):
        yield _part(None, path, branch.segments.get(path), "kept")


def _part(one: PastMending | None, path: str, segment: Segment | None, outcome: Outcome) -> MendedPart:
    known = segment is not None and segment.base_offset >= 0
    return MendedPart(
        at_ms=one.at_ms if one else None,
        snapshot_id=one.snapshot_id if one else None,
        what=path,
        topic_partition=str(segment.topic_partition) if segment else None,
        offsets=f"{segment.base_offset} to {segment.last_offset}" if segment and known else "",
        records=segment.records if segment else None,
        outcome=outcome,
    )


def _few(offsets: Sequence[int]) -> str:
    """The ``offsets`` in words, the first ones if there are many."""
    return ", ".join(map(str, offsets[:FEW])) + (f" … {offsets[-1]}" if len(offsets) > FEW else "")


def _files(table: Table, identifier: str, one: PastMending, branch: "_Branch") -> Iterator[MendedFile]:
    outcomes: dict[str, Outcome] = {path: "kept" if path in branch.held else "dropped" for path in one.parts.files}
    outcomes |= dict.fromkeys(one.parts.lost, "lost")
    known = branch.segments | _before(table, identifier, one, outcomes.keys() - branch.segments.keys())
    for path, outcome in outcomes.items():
        yield MendedFile(path, outcome, known.get(path))


def _before(table: Table, identifier: str, one: PastMending, paths: Collection[str]) -> dict[str, Segment]:
    """The segments at ``paths`` in the snapshot of main before the mending, if that has not expired."""
    made = table.snapshot_by_id(one.snapshot_id) if paths and one.snapshot_id is not None else None
    if made is None or made.parent_snapshot_id is None:
        return {}
    entries = read_entries(at_snapshot(table, made.parent_snapshot_id), among=paths)
    found = (facts(table, identifier, entry) for entry, _ in entries)
    return {item.path: item for item in found if isinstance(item, Segment)}


@dataclass(frozen=True)
class _Branch:
    """What the branch of mended records holds."""

    table: Table
    columns: ColumnRoles
    segments: dict[str, Segment]
    """All its segments, by path."""
    held: dict[str, PastMending | None] = field(default_factory=dict)
    """The paths of the files that it keeps by reference, with the mending."""
    copies: dict[PastMending | None, list[DataFile]] = field(default_factory=lambda: defaultdict(list))
    """The files with copies of records, by mending."""

    @classmethod
    def of(cls, table: Table, identifier: str) -> "_Branch":
        segments = {one.path: one for one in read(on_branch(table, MENDED), identifier)}
        branch = cls(table, ColumnRoles.of(table, identifier), segments)
        for entry, past in mended_entries(table):
            file = entry.data_file
            if file.file_path.startswith(copies_prefix(table)):
                branch.copies[past].append(file)
            else:
                branch.held[file.file_path] = past
        return branch

    def records(self, past: PastMending | None) -> Iterable[MendedRecord]:
        """The records that the mending took, in offset order."""
        parts = past.parts.records if past else ()
        told = [(one.topic_partition, offset, one.path) for one in parts for offset in one.offsets]
        if past in self.copies:
            paths: dict[int, set[str]] = defaultdict(set)
            for _, offset, path in told:
                paths[offset].add(path)
            found = [one for file in self.copies[past] for one in self._read(file, paths)]
        else:
            found = [MendedRecord(where, offset, (path,), None) for where, offset, path in told]
        return sorted(found, key=lambda one: (one.topic_partition, one.offset))

    def _read(self, file: DataFile, paths: Mapping[int, set[str]]) -> Iterator[MendedRecord]:
        segment = self.segments.get(file.file_path)
        where = str(segment.topic_partition) if segment else "unknown topic partition"
        for batch in DataFiles.of(self.table).batches(Source.of(file)):
            rows = batch.select(own_columns(self.columns, batch.schema)).to_pylist()
            texts = described(self.columns, rows, samples_of(self.table.properties))
            for row, content, text in zip(rows, contents_of(self.columns, batch), texts, strict=True):
                offset = row[self.columns.offset]
                yield MendedRecord(where, offset, tuple(sorted(paths.get(offset, ()))), shown_digest(content), text)
