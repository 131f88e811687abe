"""Maintenance of a table: what may go is found first, then it goes.

So a dry run finds exactly what a run would remove. Right before anything is deleted, each part looks again, so that
several maintenance runs, lane runs and other writers may work at the same time. If a run is interrupted, the next run
finishes its work. The next run also takes what the commits of this one allow to go.

**Small manifests of data files** are merged, so that readers open few of them. Main lists the same files before and
after. Earlier snapshots keep the old manifests, which are deleted when those snapshots expire. As long as a request to
erase keys is open, manifests with entries of removed files are written anew without them, those of delete files
too, because the bounds in such an entry may be a key (C30).

**Orphans** are files below the table's location that nothing reaches. They may belong to a writer that died, to another
table, or to this table when it was in another catalog. Therefore they stay, unless the table's operator allows their
deletion (`orphans` in ``firn.maintenance``), and no other table can own them. They must be older than three days, as
nothing refers yet to the files of a writer that is about to commit. Firn's own folders are not looked at:
`job.garbage` has a rule for them.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import Final

from pyarrow.fs import FileSystem
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.clock import exact_span
from firnlake.errors import ConflictError, RefusedError
from firnlake.iceberg.branches import REMOVED_TOMBSTONES, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import BranchChange, Commit
from firnlake.iceberg.commit import commit_changes, settle
from firnlake.iceberg.files import (
    DATA_PATH,
    METADATA_PATH,
    Finding,
    Garbage,
    Kind,
    Stored,
    files_in,
    path_of,
    store,
    whole_number,
)
from firnlake.iceberg.manifests import ahead, checked_entries, keeps_every_field, manifest_writer
from firnlake.job.garbage import AGE_MS, OF_AGE, end, listed, own_garbage, store_ms
from firnlake.lanes.erasure.certificate import certificates
from firnlake.lanes.erasure.requests import open_requests
from firnlake.maintain.expire import Expiry
from firnlake.table.columns import ColumnRoles
from firnlake.table.manifest_reader import read_entries
from firnlake.table.policy import UNLIMITED, Policies
from firnlake.table.reached import (
    METADATA_FILE,
    Contents,
    Reached,
    UnknownReferencesError,
    metadata_at,
    whole_table,
)
from firnlake.table.removed_tombstones import awaited_tombstones

GC_ENABLED: Final = "gc.enabled"
"""Iceberg's property that allows the deletion of a table's files."""

_OPTIONAL: Final = frozenset({Kind.SNAPSHOTS, Kind.ORPHANS, Kind.MANIFESTS})
"""The parts that ``firn.maintenance`` has to name."""
HOURLY: Final = frozenset({Kind.FIRN, Kind.TOMBSTONES})
"""The parts that are cheap enough to run every hour."""
ALL: Final = _OPTIONAL | HOURLY | {Kind.CERTIFICATE}


def maintain_table(
    lake: Lake, identifier: str, now_ms: int, *, remove: bool, parts: Collection[Kind] = ALL
) -> list[Finding]:
    """Maintain table ``identifier`` and return the findings of the ``parts``, which are named by what they are about;
    without ``remove``, change nothing.

    A file that a kept snapshot, branch or tag refers to is never deleted (C29). Raises RefusedError for an unknown
    table, a table without the record columns or a wrong limit, UnavailableError when catalog or store do not answer.
    All files that were deleted before an error were garbage.
    """
    with lake.answering():
        table = whole_table(lake, identifier)
        ColumnRoles.of(table, identifier)
        maintained = Policies.parse(identifier, table.properties).default.maintained
        asked = {part for part in parts if part in maintained or part not in _OPTIONAL}
        found: list[Finding] = []
        if table.properties.get(GC_ENABLED, "true").strip().lower() == "false":
            for part in sorted(asked & {Kind.SNAPSHOTS, Kind.ORPHANS}):
                reason = f"property {GC_ENABLED} is false, so another table may use the files; allowed: true"
                found.append(Finding(part, identifier, goes=False, reason=reason, files=0))
                asked.remove(part)
        expiry, garbage = _garbage(lake, identifier, now_ms, asked, found, remove=remove)
        if expiry:
            found += expiry.delete() if remove else expiry.findings()
        found += end(lake, identifier, garbage) if remove else (one.finding() for one in garbage)
        if Kind.MANIFESTS in asked:
            found += rewrite_manifests(lake, identifier, now_ms, remove=remove)
        if Kind.TOMBSTONES in asked:
            found += old_tombstones(lake, identifier, now_ms, remove=remove)
        if Kind.CERTIFICATE in asked:
            found += certificates(lake, identifier, now_ms, issue=remove)
        return found


def _garbage(
    lake: Lake, identifier: str, now_ms: int, parts: Collection[Kind], found: list[Finding], *, remove: bool
) -> tuple[Expiry | None, list[Garbage]]:
    """What expires, and all other garbage of the ``parts``. Adds to ``found`` what stays, or can't be looked at."""
    contents = Contents(lake.table(identifier).io)
    expiry = Expiry.find(lake, identifier, now_ms, contents) if Kind.SNAPSHOTS in parts else None
    try:
        reached = Reached.look(lake, identifier, contents, expiry.leaving if expiry else ())
    except UnknownReferencesError as error:
        found.append(Finding.of_error(Kind.EXPIRED if expiry else Kind.FIRN, identifier, error))
        return None, []
    reason = "the metadata log does not name it, so another catalog or a late commit may: what it reaches stays"
    found += (Finding(Kind.METADATA, one, goes=False, reason=reason) for one in reached.others)
    if expiry:
        expiry.look(reached)
    if Kind.FIRN not in parts:
        return expiry, []
    garbage, staying = own_garbage(lake, identifier, reached, remove=remove)
    if Kind.ORPHANS in parts:
        others, unknown = orphans(lake, reached, remove=remove)
        garbage, staying = garbage + others, staying + unknown
    found += staying
    return expiry, garbage


def old_tombstones(lake: Lake, identifier: str, now_ms: int, *, remove: bool) -> list[Finding]:
    """Findings about the files of removed tombstones that are older than ``firn.late.max.ms``; ``remove`` removes them
    from their branch, in one commit (C9).

    The age of a file is that of the snapshot that added it, or of the file itself if that snapshot has expired. A file
    stays while it may be needed for an older record that has landed. If a plan needs a removed tombstone that is no
    longer on the branch, Firn makes the plan again.
    """
    table = lake.table(identifier)
    limit_ms = Policies.parse(identifier, table.properties).default.late_max_ms
    old = [file for file in _removed(table) if limit_ms != UNLIMITED and file.is_older(now_ms - limit_ms)]
    awaited = awaited_tombstones(table, identifier) if old else ()
    old = [file for file in old if file.path not in awaited]
    if not old:
        return []
    paths = {file.path for file in old}

    def changes(current: Table) -> Mapping[str, BranchChange]:
        own = {entry.data_file.file_path for entry, _ in read_entries(on_branch(current, REMOVED_TOMBSTONES))}
        return {REMOVED_TOMBSTONES: BranchChange(removed=sorted(paths & own))} if paths & own else {}

    if remove:
        commit_changes(lake, identifier, changes)
    name, reason = f"{identifier} ({REMOVED_TOMBSTONES})", f"older than late.max.ms = {exact_span(limit_ms)}"
    return [Finding.of_files(Kind.TOMBSTONES, name, old, now_ms, goes=True, reason=reason)]


def _removed(table: Table) -> Iterator[Stored]:
    """Yield the files of removed tombstones, each with the time when it was added."""
    added = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in table.metadata.snapshots}
    for entry, _ in read_entries(on_branch(table, REMOVED_TOMBSTONES)):
        path, size = entry.data_file.file_path, entry.data_file.file_size_in_bytes
        access, place = store(table, path)
        written_ms = added.get(entry.snapshot_id or 0) or Stored.of(access, access.get_file_info(place)).written_ms
        yield Stored(access, path, size, written_ms)


def rewrite_manifests(lake: Lake, identifier: str, now_ms: int, *, remove: bool) -> list[Finding]:
    """Findings about the manifests on main that are worth rewriting; ``remove`` rewrites them in one commit.

    A manifest is small if it has less than half of ``commit.manifest.target-size-bytes``. Small manifests of data files
    are merged if there are at least ``commit.manifest.min-count-to-merge`` of one partition spec. Appends that land
    meanwhile are kept. When another commit replaces a manifest meanwhile, or a manifest is damaged, the finding says so
    and nothing is changed. Raises RefusedError for an unknown table or a wrong limit, UnavailableError when catalog or
    store do not answer.
    """
    table = lake.table(identifier)
    names = TableProperties
    number = partial(whole_number, identifier, table.properties)
    target_bytes = number(names.MANIFEST_TARGET_SIZE_BYTES, names.MANIFEST_TARGET_SIZE_BYTES_DEFAULT)
    least = number(names.MANIFEST_MIN_MERGE_COUNT, names.MANIFEST_MIN_MERGE_COUNT_DEFAULT)
    findings: list[Finding] = []
    try:
        groups = list(_groups(table, target_bytes, least))
        findings = [_finding(table, group, reason, now_ms) for group, reason in groups]
        if remove and groups:
            _replace(lake, table, [group for group, _ in groups], target_bytes)
    except ConflictError as error:
        return [replace(one, goes=False, reason=f"another commit was faster: {error}") for one in findings]
    except RefusedError as error:
        return [Finding.of_error(Kind.MANIFESTS, identifier, error)]
    return findings


def _groups(table: Table, target_bytes: int, least: int) -> Iterator[tuple[list[ManifestFile], str]]:
    """Manifests on main that are worth rewriting, of one partition spec and content (data or deletes), and the reason.

    Encrypted manifests stay as they are, and so do manifests of format version 1, whose entries have no sequence
    numbers, and those of other writers with fields that PyIceberg's writer would drop.
    """
    snapshot = table.current_snapshot()
    by_kind: defaultdict[tuple[int, ManifestContent], list[ManifestFile]] = defaultdict(list)
    for manifest in snapshot.manifests(table.io) if snapshot else []:
        if manifest.sequence_number and manifest.key_metadata is None:
            by_kind[manifest.partition_spec_id, manifest.content].append(manifest)
    has_removed = any(one.deleted_files_count for manifests in by_kind.values() for one in manifests)
    is_erasing = has_removed and bool(open_requests(table))
    for (_, content), manifests in by_kind.items():
        small = [one for one in manifests if content == ManifestContent.DATA and 2 * one.manifest_length < target_bytes]
        are_enough = len(small) >= max(least, 2)
        asked = [one for one in manifests if (is_erasing and one.deleted_files_count) or (are_enough and one in small)]
        chosen = [one for one, is_kept in ahead(partial(keeps_every_field, table), asked) if is_kept]
        if is_erasing and any(one.deleted_files_count for one in chosen):
            yield chosen, "rewritten without removed files, whose bounds may reveal keys to erase"
        elif len(chosen) >= max(least, 2):
            limit = f"{TableProperties.MANIFEST_MIN_MERGE_COUNT} is {least}"
            yield chosen, f"merged: {len(chosen)} small manifests; {limit}"


def _finding(table: Table, manifests: Sequence[ManifestFile], reason: str, now_ms: int) -> Finding:
    first = manifests[0]
    kind = "delete manifests" if first.content == ManifestContent.DELETES else "manifests"
    times = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in table.metadata.snapshots}
    newest = max((times[one.added_snapshot_id] for one in manifests if one.added_snapshot_id in times), default=None)
    return Finding(
        Kind.MANIFESTS,
        f"{'.'.join(table.name())} ({kind} of partition spec {first.partition_spec_id})",
        goes=True,
        reason=reason,
        files=len(manifests),
        bytes=sum(one.manifest_length for one in manifests),
        age_ms=None if newest is None else now_ms - newest,
    )


def _replace(lake: Lake, table: Table, groups: Sequence[Sequence[ManifestFile]], target_bytes: int) -> None:
    """Rewrite ``groups`` of manifests and commit; raises ConflictError when main no longer lists them."""
    snapshot_id = table.metadata.new_snapshot_id()
    change = BranchChange(
        replaced=[one.manifest_path for group in groups for one in group],
        written=[one for group in groups for one in _merged(table, group, snapshot_id, target_bytes)],
        same_records=True,
    )
    commit = Commit(table, [(MAIN_BRANCH, change)], {(MAIN_BRANCH, 0): snapshot_id})
    settle(lake, ".".join(table.name()), commit.request)


def _merged(
    table: Table, manifests: Sequence[ManifestFile], snapshot_id: int, target_bytes: int
) -> Iterator[ManifestFile]:
    """Write the live entries of ``manifests`` to new ones of the target size, and yield these."""
    first = manifests[0]
    # One manifest after the other, because entries take ten times the memory of a file.
    read = ahead(partial(checked_entries, table.io), manifests)
    entries = (one for _, listed in read for one in listed if one.status != ManifestEntryStatus.DELETED)
    for entry in entries:
        with manifest_writer(table, first.partition_spec_id, snapshot_id, first.content) as writer:
            writer.existing(entry)
            while writer.tell() < target_bytes and (following := next(entries, None)):
                writer.existing(following)
        yield writer.to_manifest_file()


_PATHS: Final = (DATA_PATH, METADATA_PATH, "write.object-storage.path", "write.folder-storage.path")
"""Iceberg's properties for the folders of a table's files; the last two are older names of the first property."""
_MARKS: Final = ("_", ".")
"""Beginnings of hidden names."""


def orphans(lake: Lake, reached: Reached, *, remove: bool) -> tuple[list[Garbage], list[Finding]]:
    """What may go from the location of the table, and findings about what stays there, of all files that are not
    ``reached``; without ``remove``, nothing is written."""
    table = reached.table
    location = table.location().rstrip("/")
    _, folder = store(table, location)
    found = listed(table, location)
    # A file is hidden if a name in its path is marked.
    marked = [any(name.startswith(_MARKS) for name in one.path[len(folder) :].split("/")) for one in found]
    unknown = reached.unreached([file for file, is_hidden in zip(found, marked, strict=True) if not is_hidden])
    now_ms = store_ms(table, location, remove=remove)
    limit_ms = 0 if now_ms is None else now_ms - AGE_MS
    old = [file for file in unknown if file.is_older(limit_ms)]
    young = [file for file in unknown if not file.is_older(limit_ms)]
    staying = []
    if young:
        reason = f"unreferenced, but not {OF_AGE}"
        staying.append(Finding.of_files(Kind.ORPHANS, location, young, now_ms, goes=False, reason=reason))
    if old:
        try:
            check_alone(lake, table, [file.path for file in unknown])
        except RefusedError as error:
            staying.append(Finding.of_error(Kind.ORPHANS, location, error, len(old)))
            old = []
    by_folder: dict[str, list[Stored]] = defaultdict(list)
    for file in old:
        within, slash, _ = file.path[len(folder) :].lstrip("/").partition("/")
        by_folder[f"{location}/{within}" if slash else location].append(file)
    reason = f"unreferenced; {OF_AGE}"
    return [Garbage(Kind.ORPHANS, name, reason, own, now_ms) for name, own in sorted(by_folder.items())], staying


def check_alone(lake: Lake, table: Table, unknown: Iterable[str]) -> None:
    """Raise RefusedError when another table's files may be at, above or below the location of ``table``.

    ``unknown`` are the paths on the store of files below it that the table does not reach. Loads every table of the
    catalog; all must be known.
    """
    _check_catalog(lake, table)
    access, folder = store(table, table.location().rstrip("/"))
    within = (path for path in unknown if METADATA_FILE.fullmatch(path.rpartition("/")[2]))
    for where, paths in (("within", within), ("above", _above(access, folder))):
        for path in paths:
            _, uuid = metadata_at(access, path)
            if uuid not in ("", str(table.metadata.table_uuid).lower()):
                raise _refused(table, f"{path}, {where} that location, is of another table (UUID {uuid})")


def _check_catalog(lake: Lake, table: Table) -> None:
    mine = {table.location(), table.properties.get(METADATA_PATH, table.location())}
    identifier, problem = ".".join(table.name()), "the catalog's tables can't be listed"
    others: dict[str, set[str]] = {}
    try:
        for other in lake.all_tables():
            problem = f"table {other} can't be loaded"
            others[other] = _locations(lake.table(other)) if other != identifier else set()
    except Exception as error:  # the metadata of other tables may be damaged in any way
        reason = " ".join(str(error).split())
        raise RefusedError(
            f"table {identifier}: orphans stay, because another table's files may be among them: {problem}: {reason}; "
            f"allowed: a catalog in which all tables can be loaded"
        ) from error
    for other, locations in others.items():
        if any(_overlap(location, one) for location in locations for one in mine):
            raise _refused(table, f"table {other} is at {min(locations)}")


def _above(files: FileSystem, folder: str) -> Iterator[str]:
    """Yield the metadata files in the subfolder ``metadata`` of each folder above ``folder``, if it can be listed."""
    for parent in PurePosixPath(folder).parents:
        if str(parent) not in (".", "/"):
            with suppress(OSError):
                for file in files_in(files, f"{parent}/metadata", recursive=False):
                    if METADATA_FILE.fullmatch(file.path.rpartition("/")[2]):
                        yield file.path


def _locations(table: Table) -> set[str]:
    """The locations of the folders that hold files of ``table``."""
    told = {table.properties[name] for name in _PATHS if name in table.properties}
    return {table.location(), table.metadata_location.rpartition("/")[0], *told}


def _overlap(one: str, other: str) -> bool:
    paths = [f"{path_of(location).rstrip('/')}/" for location in (one, other)]
    return paths[0].startswith(paths[1]) or paths[1].startswith(paths[0])


def _refused(table: Table, problem: str) -> RefusedError:
    return RefusedError(
        f"table {'.'.join(table.name())}: orphans stay, because other tables may share its location "
        f"{table.location()}: {problem}; allowed: a location with no other table's files at, below or above it (you "
        "can remove the files of a dropped table by hand)"
    )
