"""Takes from main what a person names, because no lane can work with it: a damaged or lost data file, or records (C36).

One commit takes it from main and adds it to the branch ``firn_mended``: a data file by reference, whatever can still be
read of it; a record as a copy, because main's data file stays and a position delete hides the record there (C27). A
lost file is not added, since no reader of the branch could get past it; the summary of the commit names it.

What Firn remembers of main's history stays. The log goes on with records missing, so nothing has begun anew (C33).
"""

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

import numpy as np
from pyarrow.fs import FileType
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.errors import ConflictError, RefusedError
from firnlake.iceberg.branch_snapshot import BranchChange
from firnlake.iceberg.branches import (
    HAS_SIDE_BRANCHES,
    MENDED,
    ancestors,
    check_names,
    has_side_branches,
    main_as_of,
    on_branch,
)
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import Change
from firnlake.iceberg.commit import Commit, CommitRequest, settle
from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.iceberg.files import Stores, path_of
from firnlake.iceberg.manifests import Manifests
from firnlake.iceberg.parquet import ParquetFileWriter, WriteOptions
from firnlake.iceberg.position_deletes import PositionDeleteWriter
from firnlake.iceberg.row_deletes import digest_of_all
from firnlake.maintain.conflicting_records import RecordCopy
from firnlake.table.mendings import PastMending, TakenParts, TakenRecords, copies_prefix, taken_files
from firnlake.table.policy import LONG_MAX
from firnlake.table.segment import Segment, Segments
from firnlake.table.segments import read, read_entries
from firnlake.table.topic_partition import TopicPartition
from firnlake_expectations.wording import count

MOST_FILES: Final = 100
"""Number of data files that one mending takes, because every reader of the table loads the summary that names them."""


@dataclass(frozen=True)
class NamedFile:
    """A data file of main that a person has named."""

    file: DataFile
    segment: Segment | None
    """None if metadata assigns the file to no topic partition."""
    readable: int
    """Number of records that can be read, from the beginning of the file."""
    problem: str | None
    """Why not all records can be read; None if they can."""
    is_lost: bool
    """True if the store says that the file does not exist."""

    @property
    def path(self) -> str:
        """Path of the file."""
        return self.file.file_path


@dataclass(frozen=True)
class LeftInLog:
    """What main holds of a topic partition besides the named files. Offsets are inclusive."""

    topic_partition: TopicPartition
    log_end: int
    """The last offset; -1 if nothing is left."""
    former_log_end: int
    older_files: int
    """Number of the other files that may hold older records of keys in the named files, which are visible then."""
    newer_files: int
    """Number of the other files that may hold newer records of these keys."""


@dataclass(frozen=True)
class NamedFiles:
    """The named ``files`` of main in snapshot ``snapshot_id``, and what a mending that takes them leaves behind."""

    table: str
    snapshot_id: int
    files: tuple[NamedFile, ...]
    left: tuple[LeftInLog, ...]
    mended: Mapping[str, PastMending]
    """Named files that earlier mendings have taken from main, with the mending."""


def named_files(lake: Lake, identifier: str, paths: Sequence[str], as_of: int | None = None) -> NamedFiles:
    """Find and read the data files at ``paths`` in snapshot ``as_of`` of main, by default the newest; changes nothing.

    The name of a file is enough if no other file of main, and none that a mending took, has the same. Raises
    RefusedError for a path that is no data file of the snapshot, and for too many paths; UnavailableError when the
    store does not answer.
    """
    if len(paths) > MOST_FILES:
        raise RefusedError(f"{count(len(paths), 'file')} at once; allowed: up to {MOST_FILES}")
    with lake.answering():
        table = lake.table(identifier)
        seen, snapshot_id = main_as_of(table, as_of)
        of_main = {path_of(entry.data_file.file_path): entry.data_file for entry, _ in read_entries(seen)}
        taken = taken_files(table)
        wanted = {_whole(path, of_main.keys() | taken): path for path in paths}
        live = {path: of_main[path] for path in wanted if path in of_main}
        mended = {wanted[one]: by for one, by in taken.items() if one in wanted and one not in live}
        unknown = [path for one, path in wanted.items() if one not in live and path not in mended]
        if unknown:
            raise _unknown(identifier, snapshot_id, unknown[0], of_main)
        segments = read(seen, identifier)
        by_path = {one.path: one for one in segments}
        chosen = [live[one] for one in wanted if one in live]
        files = [_named(table, file, by_path.get(file.file_path)) for file in chosen]
    return NamedFiles(identifier, snapshot_id, tuple(files), tuple(_left(segments, files)), mended)


def _unknown(identifier: str, snapshot_id: int, path: str, of_main: Mapping[str, DataFile]) -> RefusedError:
    same = sorted(of_main[one].file_path for one in _with_name(path, of_main))
    if same:
        return RefusedError(
            f"table {identifier}: {count(len(same), 'data file')} of main have the name {path}; allowed: the path of "
            f"one of them: {'; '.join(same[:MOST_FILES])}"
        )
    return RefusedError(
        f"table {identifier}: snapshot {snapshot_id} of main has no data file {path}; allowed: a path as Firn's "
        "messages name it, or the name of one file"
    )


def _whole(path: str, known: Collection[str]) -> str:
    """The path of the only ``known`` file with the name ``path``; without one, ``path`` as a path."""
    same = _with_name(path, known)
    return same[0] if len(same) == 1 else path_of(path)


def _with_name(name: str, known: Iterable[str]) -> list[str]:
    return [one for one in known if one.rpartition("/")[2] == name]


def _named(table: Table, file: DataFile, segment: Segment | None) -> NamedFile:
    if _is_lost(table, file.file_path):
        return NamedFile(file, segment, 0, "the store has no such file", is_lost=True)
    readable, problem = 0, None
    try:
        for batch in DataFiles.of(table).batches(Source.of(file)):
            readable += batch.num_rows
    except RefusedError as error:
        # The cause alone: whoever mends the file knows where it is and what to do.
        problem = str(error).partition("; ")[0]
    return NamedFile(file, segment, readable, problem, is_lost=False)


def _is_lost(table: Table, path: str) -> bool:
    files, place = Stores(table).of(path)
    return bool(files.get_file_info(place).type == FileType.NotFound)


def _left(segments: Segments, files: Iterable[NamedFile]) -> Iterator[LeftInLog]:
    going = [one.segment for one in files if one.segment]
    for where in sorted({one.topic_partition for one in going}):
        own = segments.by_partition[where]
        gone = [one for one in going if one.topic_partition == where]
        paths = {one.path for one in gone}
        others = [one for one in own if one.path not in paths and one.records]
        first, last = min(_span(one)[0] for one in gone), max(_span(one)[1] for one in gone)
        yield LeftInLog(
            where,
            log_end=max((one.last_offset for one in others), default=-1),
            former_log_end=max(one.last_offset for one in own),
            older_files=sum(1 for one in others if _span(one)[0] < last),
            newer_files=sum(1 for one in others if _span(one)[1] > first),
        )


def _span(segment: Segment) -> tuple[int, int]:
    """The offsets that ``segment`` may hold, inclusive; all offsets if metadata does not tell."""
    return (segment.base_offset, segment.last_offset) if segment.base_offset >= 0 else (0, LONG_MAX)


@dataclass(frozen=True)
class Mending:
    """What to take from main of ``table``, as a person has seen it in snapshot ``snapshot_id``."""

    table: str
    snapshot_id: int
    files: tuple[NamedFile, ...] = ()
    copies: tuple[RecordCopy, ...] = ()
    staying: tuple[RecordCopy, ...] = ()
    """The copies of the records that stay at the offsets of ``copies``."""

    @property
    def kept(self) -> tuple[DataFile, ...]:
        """The files that still exist."""
        return tuple(one.file for one in self.files if not one.is_lost)

    @property
    def lost(self) -> tuple[str, ...]:
        """Paths of the files that do not."""
        return tuple(one.path for one in self.files if one.is_lost)

    @property
    def parts(self) -> TakenParts:
        """What the commit's summary says that it takes."""
        by_path: dict[str, list[RecordCopy]] = defaultdict(list)
        for one in self.copies:
            by_path[one.path].append(one)
        records = (
            TakenRecords(
                path=path,
                topic_partition=str(own[0].segment.topic_partition),
                offsets=tuple(one.offset for one in own),
                positions=tuple(one.position for one in own),
            )
            for path, own in by_path.items()
        )
        return TakenParts(files=tuple(file.file_path for file in self.kept), lost=self.lost, records=tuple(records))


def mend(lake: Lake, mending: Mending) -> int | None:
    """Take what ``mending`` names from main, in one commit; return its snapshot, or None if nothing was left to take.

    Each try checks that main still has what was shown: the same files and, where records are taken, the same row-level
    deletes. Appends in between do no harm. Raises ConflictError when main has changed otherwise; RefusedError when the
    table can't have the branch; UnavailableError when the store does not answer; and the errors of ``settle``.
    """
    with lake.answering():
        table = lake.table(mending.table)
        check_names(table)
        if (mending.kept or mending.copies) and not has_side_branches(table.properties):
            raise RefusedError(
                f"table {mending.table}: its catalog takes one snapshot per commit ({HAS_SIDE_BRANCHES} is false), so "
                f"branch {MENDED} can't keep what is taken; allowed: files that are lost"
            )
        for one in mending.copies:
            if one.segment.copies > 1:
                raise RefusedError(
                    f"table {mending.table} lists {one.path} {one.segment.copies} times, and no lane takes such a file "
                    "with row-level deletes; allowed: a file that is listed once (rewrite_data_files makes one)"
                )
        if _done_by(table, mending) is not None:
            return None
        manifests = Manifests(table.io)
        _check(table, mending, manifests)
        commit = Commit(table, _changes(table, mending).items())

    def request(current: Table) -> CommitRequest | None:
        if _done_by(current, mending) is not None:
            return None
        check_names(current)
        _check(current, mending, manifests)
        return commit.request(current, manifests)

    return settle(lake, mending.table, request).snapshot_id


def _done_by(table: Table, mending: Mending) -> int | None:
    """The snapshot of another mending that has taken exactly the same since it was shown; None without one."""
    newer = takewhile(lambda one: one.snapshot_id != mending.snapshot_id, ancestors(table))
    same = (one.snapshot_id for one in newer if TakenParts.of(one) == mending.parts)
    return next(same, None)


def _check(table: Table, mending: Mending, manifests: Manifests) -> None:
    """Raise ConflictError unless main of ``table`` has what was shown."""
    try:
        main_as_of(table, mending.snapshot_id)
    except RefusedError as error:
        raise ConflictError(f"{error}; main has changed, look again") from error
    shown = {one.path: one.segment.deletes for one in (*mending.copies, *mending.staying)}
    wanted = {*shown, *(one.path for one in mending.files)}
    live = {entry.data_file.file_path: deletes for entry, deletes in read_entries(table, manifests, wanted)}
    again = f"table {mending.table}: main has changed since snapshot {mending.snapshot_id}, look again: "
    for path in sorted(wanted):
        if path not in live:
            raise ConflictError(f"{again}it no longer has {path}")
        if path in shown and digest_of_all(live[path]) != shown[path]:
            raise ConflictError(f"{again}other row-level deletes apply to {path}")
    for path in mending.lost:
        if not _is_lost(table, path):
            raise ConflictError(f"{again}{path} was lost, and is there again")


def _changes(table: Table, mending: Mending) -> Mapping[str, BranchChange]:
    """The changes of main and of the branch, with new files for the records that are taken."""
    summary = mending.parts.summary()
    held = {entry.data_file.file_path for entry, _ in read_entries(on_branch(table, MENDED))}
    kept = [file for file in mending.kept if file.file_path not in held]
    deletes: list[DataFile] = []
    if mending.copies:
        records, deletes = _written(table, mending.copies)
        kept += records
    removed = [one.path for one in mending.files]
    changes: dict[str, BranchChange] = {MAIN_BRANCH: Change(removed=removed, deletes=deletes, summary=summary)}
    return changes | {MENDED: Change(added=kept, summary=summary)} if kept else changes


def _written(table: Table, copies: Sequence[RecordCopy]) -> tuple[list[DataFile], list[DataFile]]:
    """Write ``copies`` to new data files, and position deletes that hide them in their own; one of each kind for each
    Iceberg partition."""
    folder = f"{copies_prefix(table)}{uuid.uuid4().hex}"
    paths = {one.path for one in copies}
    sources = {entry.data_file.file_path: Source.of(entry.data_file) for entry, _ in read_entries(table, among=paths)}
    places: dict[tuple[int, tuple[Any, ...]], dict[str, list[RecordCopy]]] = defaultdict(lambda: defaultdict(list))
    for one in copies:
        source = sources[one.path]
        places[source.spec_id, source.partition][one.path].append(one)
    records, deletes = [], []
    options = WriteOptions(table.schema(), dict(table.properties))
    for number, ((spec_id, partition), by_path) in enumerate(places.items()):
        location = f"{folder}/{number:05}"
        writer = ParquetFileWriter(table.io.new_output(f"{location}-records.parquet"), options, partition)
        for one in sorted((one for own in by_path.values() for one in own), key=lambda one: (one.offset, one.path)):
            writer.write(one.row)
        records.append(writer.close().data_file(spec_id))
        output = table.io.new_output(f"{location}-deletes.parquet")
        with PositionDeleteWriter(output, spec_id, partition) as hiding:
            for path in sorted(by_path):
                hiding.write(path, np.array(sorted(one.position for one in by_path[path]), dtype=np.int64))
            deletes.append(hiding.close().data_file())
    return records, deletes
