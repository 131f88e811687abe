"""Takes from main the data files that a person names, because no lane can work with them: damaged or lost ones (C36).

One commit takes a file from main and adds it, by reference, to the branch ``firn_mended``, whatever can still be read
of it. A lost file is not added, since no reader of the branch could get past it; the summary of the commit names it.

What Firn remembers of main's history stays. The log goes on with records missing, so nothing has begun anew (C33).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from pyarrow.fs import FileType
from pyiceberg.manifest import DataFile, ManifestEntry
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from firnlake.clock import show_ms
from firnlake.errors import ConflictError, RefusedError
from firnlake.iceberg.branches import (
    MENDED,
    ancestors,
    at_snapshot,
    check_names,
    on_branch,
)
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import BranchChange
from firnlake.iceberg.commit import Commit, CommitRequest, settle
from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.iceberg.files import path_of, store
from firnlake.iceberg.manifests import Manifests
from firnlake.table.history import TakenFiles, is_mending
from firnlake.table.live_files import read_entries
from firnlake.table.manifest_reader import facts, read
from firnlake.table.policy import LONG_MAX
from firnlake.table.segment import Segment
from firnlake.table.segments import Segments
from firnlake.table.topic_partition import TopicPartition
from firnlake_expectations.wording import count

MOST_FILES: Final = 100
"""Number of data files that one mending takes, because every reader of the table loads the summary that names them."""


@dataclass(frozen=True)
class PastMending:
    """A mending that a snapshot of main or of the branch ``firn_mended`` tells of."""

    snapshot_id: int | None
    """Its snapshot in main's history; None if that has expired, or was rolled back."""
    sequence_number: int
    """Of its snapshot on main, or else on the branch. One commit makes both, so the branch's has the next number."""
    at_ms: int
    taken: TakenFiles

    def __str__(self) -> str:
        return in_words(self.snapshot_id, self.at_ms)


def in_words(snapshot_id: int | None, at_ms: int) -> str:
    """The mending that made ``snapshot_id`` at ``at_ms``, in words."""
    snapshot = f"snapshot {snapshot_id}" if snapshot_id is not None else "a snapshot that main's history no longer has"
    return f"firn mend with {snapshot} at {show_ms(at_ms)}"


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
    snapshot_id: int | None
    """None if main has no snapshot, and so no file."""
    files: tuple[NamedFile, ...]
    left: tuple[LeftInLog, ...]
    mended: Mapping[str, PastMending]
    """Named files that earlier mendings have taken from main, with the mending."""

    @property
    def kept(self) -> tuple[DataFile, ...]:
        """The files that still exist."""
        return tuple(one.file for one in self.files if not one.is_lost)

    @property
    def lost(self) -> tuple[str, ...]:
        """Paths of the files that do not."""
        return tuple(one.path for one in self.files if one.is_lost)


def named_files(lake: Lake, identifier: str, paths: Sequence[str]) -> NamedFiles:
    """Find and read the data files of main at ``paths``; changes nothing.

    The name of a file is enough if no other file of main, and none that a mending took, has the same. Raises
    RefusedError for a path that is no data file of main, and for too many paths; UnavailableError when the store does
    not answer.
    """
    if len(paths) > MOST_FILES:
        raise RefusedError(f"{count(len(paths), 'file')} at once; allowed: up to {MOST_FILES}")
    with lake.answering():
        table = lake.table(identifier)
        of_main = {path_of(entry.data_file.file_path): entry.data_file for entry, _ in read_entries(table)}
        taken = taken_files(table)
        wanted = {_whole(path, of_main.keys() | taken): path for path in paths}
        live = {path: of_main[path] for path in wanted if path in of_main}
        mended = {wanted[one]: by for one, by in taken.items() if one in wanted and one not in live}
        unknown = [path for one, path in wanted.items() if one not in live and path not in mended]
        if unknown:
            raise _unknown(identifier, unknown[0], of_main)
        segments = read(table, identifier)
        by_path = {one.path: one for one in segments.each()}
        files = [_named(table, file, by_path.get(file.file_path)) for file in live.values()]
    return NamedFiles(identifier, segments.snapshot_id, tuple(files), tuple(_left(segments, files)), mended)


def _unknown(identifier: str, path: str, of_main: Mapping[str, DataFile]) -> RefusedError:
    same = sorted(of_main[one].file_path for one in _with_name(path, of_main))
    if same:
        return RefusedError(
            f"table {identifier}: {count(len(same), 'data file')} of main have the name {path}; allowed: the path of "
            f"one of them: {'; '.join(same[:MOST_FILES])}"
        )
    return RefusedError(
        f"table {identifier}: main has no data file {path}; allowed: a path as Firn's messages name it, or the name of "
        "one file"
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
    files, place = store(table, path)
    return bool(files.get_file_info(place).type == FileType.NotFound)


def _left(segments: Segments, files: Iterable[NamedFile]) -> Iterator[LeftInLog]:
    going = [one.segment for one in files if one.segment]
    for where in sorted({one.topic_partition for one in going}):
        own = segments[where]
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


def mend(lake: Lake, named: NamedFiles) -> int | None:
    """Take the ``named`` files from main, in one commit; return its snapshot, or None if another mending has taken them
    since they were shown.

    Each try checks that main still has what was shown. Appends in between do no harm. Raises ConflictError when main
    has changed otherwise; RefusedError when the table can't have the branch; UnavailableError when the store does not
    answer; and the errors of ``settle``.
    """
    with lake.answering():
        table = lake.table(named.table)
        check_names(table)
        manifests = Manifests(table.io)
        commit = Commit(table, _changes(table, named).items())

    def request(current: Table) -> CommitRequest | None:
        check_names(current)
        return commit.request(current, manifests) if _is_to_take(current, named, manifests) else None

    return settle(lake, named.table, request).snapshot_id


def _is_to_take(table: Table, named: NamedFiles, manifests: Manifests) -> bool:
    """True if main of ``table`` has what was shown, False if it has none of it because mendings took it since.

    Raises ConflictError if main has changed otherwise.
    """
    again = f"table {named.table}: main has changed since snapshot {named.snapshot_id}, look again: "
    if named.snapshot_id not in {one.snapshot_id for one in ancestors(table)}:
        raise ConflictError(f"{again}its history no longer has this snapshot")
    wanted = {one.path for one in named.files}
    missing = wanted - {entry.data_file.file_path for entry, _ in read_entries(table, manifests, wanted)}
    if missing == wanted and {path_of(path) for path in wanted} <= taken_files(table).keys():
        return False
    if missing:
        raise ConflictError(f"{again}it no longer has {min(missing)}")
    for path in named.lost:
        if not _is_lost(table, path):
            raise ConflictError(f"{again}{path} was lost, and is there again")
    return True


def _changes(table: Table, named: NamedFiles) -> Mapping[str, BranchChange]:
    """The changes of main and of the branch."""
    summary = TakenFiles(files=tuple(one.file_path for one in named.kept), lost=named.lost).summary()
    on_it = {entry.data_file.file_path for entry, _ in read_entries(on_branch(table, MENDED))}
    added = [file for file in named.kept if file.file_path not in on_it]
    changes: dict[str, BranchChange] = {
        MAIN_BRANCH: BranchChange(removed=[one.path for one in named.files], summary=summary)
    }
    return changes | {MENDED: BranchChange(added=added, summary=summary)} if added else changes


def past_mendings(table: Table) -> list[PastMending]:
    """The mendings that main's history and the branch tell of, newest first.

    Raises RefusedError when another tool uses the branch's name.
    """
    branch = {_number(one): one for one in ancestors(on_branch(table, MENDED)) if is_mending(one)}
    found = []
    for one in filter(is_mending, ancestors(table)):
        number, taken = _number(one), TakenFiles.of(one)
        if number + 1 in branch and TakenFiles.of(branch[number + 1]) == taken:
            del branch[number + 1]
        found.append(PastMending(one.snapshot_id, number, one.timestamp_ms, taken))
    for number, one in branch.items():
        found.append(PastMending(None, number, one.timestamp_ms, TakenFiles.of(one)))
    return sorted(found, key=lambda one: one.sequence_number, reverse=True)


def _number(snapshot: Snapshot) -> int:
    return snapshot.sequence_number or 0


def taken_files(table: Table) -> dict[str, PastMending]:
    """The data files that mendings have taken that are in main's history, or older than all that is left of it: the
    newest such mending by the path on the store."""
    oldest = min(map(_number, ancestors(table)), default=0)
    taken: dict[str, PastMending] = {}
    for one in past_mendings(table):
        if one.snapshot_id is not None or one.sequence_number < oldest:
            for path in (*one.taken.files, *one.taken.lost):
                taken.setdefault(path_of(path), one)
    return taken


def mended_entries(table: Table) -> Iterator[tuple[ManifestEntry, PastMending | None]]:
    """The data files on the branch, each with the mending that took it; None if no summary tells of that any more."""
    # Newest last: if a file was taken again after a rollback, the newest mending counts.
    by_path = {path_of(path): one for one in reversed(past_mendings(table)) for path in one.taken.files}
    for entry, _ in read_entries(on_branch(table, MENDED)):
        yield entry, by_path.get(path_of(entry.data_file.file_path))


Outcome: TypeAlias = Literal["kept", "dropped", "lost"]
OUTCOMES: Final[Mapping[Outcome, str]] = {
    "kept": "on branch firn_mended, until somebody drops the branch",
    "dropped": "no longer on branch firn_mended",
    "lost": "lost: the store had no such file",
}
"""What became of a file that a mending took."""


@dataclass(frozen=True)
class MendedFile:
    """A data file that a mending has taken from main (C36).

    ``at_ms`` is when, epoch milliseconds; None if no summary tells any more. ``snapshot_id`` is the snapshot of main
    that the mending made; None if no summary of main tells of it. ``topic_partition`` is None if it is unknown; so are
    ``base_offset``, ``last_offset`` (inclusive) and ``records``.
    """

    at_ms: int | None
    snapshot_id: int | None
    path: str
    topic_partition: str | None
    base_offset: int | None
    last_offset: int | None
    records: int | None
    outcome: Outcome

    @property
    def taken(self) -> str:
        """When, and by which commit."""
        if self.at_ms is None:
            return f"on branch {MENDED}, but no summary tells any more when it was taken"
        return f"taken by {in_words(self.snapshot_id, self.at_ms)}"

    @property
    def contents(self) -> str:
        """What the file holds, as far as metadata tells, and what became of it."""
        outcome = OUTCOMES[self.outcome]
        if self.topic_partition is None or self.records is None:
            return outcome
        known = self.base_offset is not None
        offsets = f"offsets {self.base_offset} to {self.last_offset}" if known else "unknown offsets"
        return f"{self.topic_partition}, {offsets}, {count(self.records, 'record')}; {outcome}"


def mended(table: Table, identifier: str) -> Iterator[MendedFile]:
    """What mendings took from main of table ``identifier``, newest mending first, as far as the summaries of their
    snapshots and the branch tell. Raises RefusedError when another tool uses the branch's name."""
    on_it = {entry.data_file.file_path: past for entry, past in mended_entries(table)}
    segments = {one.path: one for one in read(on_branch(table, MENDED), identifier).each()}
    for past in past_mendings(table):
        taken = past.taken
        before = _before(table, identifier, past, {*taken.files, *taken.lost} - segments.keys())
        for path in taken.files:
            outcome: Outcome = "kept" if path in on_it else "dropped"
            yield _mended_file(past, path, segments.get(path) or before.get(path), outcome)
        for path in taken.lost:
            yield _mended_file(past, path, before.get(path), "lost")
    # The summaries have expired, or another writer added the file.
    for path in (path for path, past in on_it.items() if past is None):
        yield _mended_file(None, path, segments.get(path), "kept")


def _before(table: Table, identifier: str, past: PastMending, paths: Collection[str]) -> Mapping[str, Segment]:
    """The segments at ``paths`` in the snapshot of main before the mending, if that has not expired."""
    made = table.snapshot_by_id(past.snapshot_id) if paths and past.snapshot_id is not None else None
    if made is None or made.parent_snapshot_id is None:
        return {}
    entries = read_entries(at_snapshot(table, made.parent_snapshot_id), among=paths)
    found = (facts(table, identifier, entry) for entry, _ in entries)
    return {one.path: one for one in found if isinstance(one, Segment)}


def _mended_file(past: PastMending | None, path: str, segment: Segment | None, outcome: Outcome) -> MendedFile:
    known = segment is not None and segment.base_offset >= 0
    return MendedFile(
        at_ms=past.at_ms if past else None,
        snapshot_id=past.snapshot_id if past else None,
        path=path,
        topic_partition=str(segment.topic_partition) if segment else None,
        base_offset=segment.base_offset if segment and known else None,
        last_offset=segment.last_offset if segment and known else None,
        records=segment.records if segment else None,
        outcome=outcome,
    )
