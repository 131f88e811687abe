"""Takes from main the data files that a person names, because no lane can work with them: damaged or lost ones (C36).

One commit takes a file from main and adds it, by reference, to the branch ``firn_mended``, whatever can still be read
of it. A lost file is not added, since no reader of the branch could get past it; the summary of the commit names it.

What Firn remembers of main's history stays. The log goes on with records missing, so nothing has begun anew (C33).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyarrow.fs import FileType
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from firnlake.clock import show_ms
from firnlake.errors import ConflictError, RefusedError
from firnlake.iceberg.branches import MENDED, ancestors, at_snapshot, newest_of, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import BranchChange
from firnlake.iceberg.commit import commit_changes
from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.iceberg.files import path_of, store
from firnlake.table.history import TakenFiles, is_mending
from firnlake.table.manifest_reader import read, read_entries
from firnlake.table.segment import Segment
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


@dataclass(frozen=True)
class NamedFiles:
    """The named ``files`` of main in snapshot ``snapshot_id``, which a mending takes."""

    table: str
    snapshot_id: int | None
    """None if main has no snapshot, and so no file."""
    files: tuple[NamedFile, ...]
    mended: Mapping[str, Snapshot]
    """Named files that earlier mendings have taken from main, with the snapshot that took them."""

    @property
    def kept(self) -> tuple[DataFile, ...]:
        """The files that still exist."""
        return tuple(one.file for one in self.files if not one.is_lost)

    @property
    def lost(self) -> tuple[str, ...]:
        """Paths of the files that do not."""
        return tuple(one.file.file_path for one in self.files if one.is_lost)


def named_files(lake: Lake, identifier: str, paths: Sequence[str]) -> NamedFiles:
    """Find and read the data files of main at ``paths``; changes nothing.

    Raises RefusedError for a path that is no data file of main, for too many paths, and when the table can't have the
    branch; UnavailableError when the store does not answer.
    """
    if len(paths) > MOST_FILES:
        raise RefusedError(f"{count(len(paths), 'file')} at once; allowed: up to {MOST_FILES}")
    with lake.answering():
        table = lake.table(identifier)
        newest_of(table, MENDED)
        live = {path_of(entry.data_file.file_path): entry.data_file for entry, _ in read_entries(table)}
        wanted, taken = {path_of(path): path for path in paths}, taken_files(table)
        mended = {path: taken[one] for one, path in wanted.items() if one in taken and one not in live}
        unknown = [path for one, path in wanted.items() if one not in live and path not in mended]
        if unknown:
            raise RefusedError(
                f"table {identifier}: main has no data file {unknown[0]}; allowed: a path as Firn's messages name it"
            )
        segments = read(table, identifier)
        by_path = {one.path: one for one in segments.each()}
        files = [live[one] for one in wanted if one in live]
        named = tuple(_named(table, file, by_path.get(file.file_path)) for file in files)
    return NamedFiles(identifier, segments.snapshot_id, named, mended)


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
    files, place = store(table, path)
    return bool(files.get_file_info(place).type == FileType.NotFound)


def mend(lake: Lake, named: NamedFiles) -> int | None:
    """Take the ``named`` files from main, in one commit; return its snapshot.

    Appends since they were shown do no harm. Raises ConflictError when main no longer has one of the files, or when a
    lost file is there again; RefusedError when the table can't have the branch; UnavailableError when the store does
    not answer; and the errors of ``commit_changes``.
    """

    def changes(current: Table) -> Mapping[str, BranchChange]:
        for path in named.lost:
            if not _is_lost(current, path):
                raise ConflictError(f"{path} was lost, and is there again")
        summary = TakenFiles(files=tuple(one.file_path for one in named.kept), lost=named.lost).summary()
        on_it = {entry.data_file.file_path for entry, _ in read_entries(on_branch(current, MENDED))}
        added = [file for file in named.kept if file.file_path not in on_it]
        taken = BranchChange(removed=[one.file.file_path for one in named.files], summary=summary)
        return {MAIN_BRANCH: taken} | ({MENDED: BranchChange(added=added, summary=summary)} if added else {})

    try:
        with lake.answering():
            return commit_changes(lake, named.table, changes).snapshot_id
    except ConflictError as error:
        raise ConflictError(f"table {named.table}: main has changed since then, look again: {error}") from error


def taken_files(table: Table) -> dict[str, Snapshot]:
    """The data files that mendings in main's history have taken: the snapshot of the newest such mending by the path on
    the store."""
    taken: dict[str, Snapshot] = {}
    for one in filter(is_mending, ancestors(table)):
        told = TakenFiles.of(one)
        for path in (*told.files, *told.lost):
            taken.setdefault(path_of(path), one)
    return taken


def in_words(past: Snapshot | None) -> str:
    """The mending that made the snapshot ``past``, in words; None if main's history does not tell of it."""
    if past is None:
        return "firn mend, but main's history does not tell when"
    return f"firn mend with snapshot {past.snapshot_id} at {show_ms(past.timestamp_ms)}"


def mended(table: Table, identifier: str) -> Iterator[str]:
    """Lines about what mendings in main's history took from table ``identifier``, newest mending first, and about what
    else the branch keeps. Raises RefusedError when another tool uses the branch's name."""
    branch = on_branch(table, MENDED)
    on_it = dict.fromkeys(entry.data_file.file_path for entry, _ in read_entries(branch))
    kept = _holdings(branch, identifier)
    for past in filter(is_mending, ancestors(table)):
        taken, former = TakenFiles.of(past), _holdings(at_snapshot(table, past.parent_snapshot_id), identifier)
        for path in (*taken.files, *taken.lost):
            lost = "lost: the store had no such file" if path in taken.lost else f"no longer on branch {MENDED}"
            held = kept.get(path) or former.get(path, "")
            yield f"{path} {held}{_KEPT if path in on_it else lost}; taken by {in_words(past)}"
            on_it.pop(path, None)
    for path in on_it:
        yield f"{path} {kept.get(path, '')}{_KEPT}; taken by {in_words(None)}"


_KEPT: Final = f"on branch {MENDED}, until somebody drops the branch"


def _holdings(table: Table, identifier: str) -> Mapping[str, str]:
    """What each segment of ``table`` holds, by path, as far as metadata tells."""
    return {one.path: _holding(one) for one in read(table, identifier).each()}


def _holding(segment: Segment) -> str:
    known = segment.base_offset >= 0
    offsets = f"offsets {segment.base_offset} to {segment.last_offset}" if known else "unknown offsets"
    return f"{segment.topic_partition}, {offsets}, {count(segment.records, 'record')}; "
