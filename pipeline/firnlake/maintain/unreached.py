"""The files that only expired snapshots reach, and the files that earlier metadata of a table has named."""

import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from gzip import BadGzipFile
from typing import Final

import numpy as np
from pyiceberg.exceptions import ValidationError
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from firnlake.iceberg.deleter import Deletable, Finding, Kind, delete
from firnlake.iceberg.files import Stored, Stores, path_of
from firnlake.iceberg.referenced_files import Contents, Hashes, Numbers, Reach
from firnlake.maintain.listing import OF_AGE
from firnlake.table.history import document_of
from firnlake.table.references import UnknownReferencesError, is_in

_UNREADABLE: Final = (FileNotFoundError, ValidationError, ValueError, EOFError, BadGzipFile, zlib.error)
"""Errors of reading a metadata file that is gone or damaged; any other error means that the store does not answer."""


def named_once(table: Table, contents: Contents, paths: Collection[str]) -> set[str]:
    """The ``paths`` on the store that earlier metadata files of ``table`` name, or that snapshots in these files reach.

    Metadata files, manifest lists and manifests that are gone or damaged name nothing.
    """
    wanted = set(map(path_of, paths))
    hashes = np.unique(Reach.of(paths).paths)
    known = {one.snapshot_id for one in table.metadata.snapshots}
    named: set[str] = set()
    for metadata in _earlier(table) if wanted else ():
        expired = [one for one in metadata.snapshots if one.snapshot_id not in known]
        known.update(one.snapshot_id for one in expired)
        for locations in (_in_metadata(metadata), _in_snapshots(expired, contents, hashes)):
            named |= wanted.intersection(map(path_of, locations))
        if named == wanted:
            break
    return {path for path in paths if path_of(path) in named}


def _in_metadata(metadata: TableMetadata) -> Iterator[str]:
    yield from _log(metadata)
    yield from (one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics))


def _in_snapshots(snapshots: Iterable[Snapshot], contents: Contents, hashes: Hashes) -> Iterator[str]:
    """Locations of the files that ``snapshots`` reach.

    The data files of a manifest are left out if no path in it has one of ``hashes``, so that the manifest need not be
    read again for their locations.
    """
    missing: list[str] = []
    for snapshot in snapshots:
        yield snapshot.manifest_list
        if document := document_of(snapshot):
            yield document
    manifests = [int(one) for one in contents.manifests_of(snapshots, missing)]
    contents.reach_of(manifests, missing)
    for manifest in manifests:
        yield contents.manifest(manifest)[0]
        if contents.is_read(manifest) and is_in(contents.reach_of([manifest]).paths, hashes).any():
            yield from (location for location, _ in contents.files_of(manifest))


def _earlier(table: Table) -> Iterator[TableMetadata]:
    """Yield earlier metadata of ``table``, newest first.

    First come all files that the table's metadata log names. After these, each file is the oldest existing file that
    the log of the previous file names. This finds every snapshot that was in the metadata for at least as many commits
    as a log has entries (100 by default). Reading every metadata file would take hours on a busy table.
    """
    last, read = table.metadata, {table.metadata_location}
    for location in reversed(_log(last)):
        read.add(location)
        if metadata := _read(table, location):
            last = metadata
            yield metadata
    while older := [one for one in _log(last) if one not in read]:
        for location in older:
            read.add(location)
            if metadata := _read(table, location):
                last = metadata
                yield metadata
                break


def _log(metadata: TableMetadata) -> list[str]:
    return [one.metadata_file for one in metadata.metadata_log]


def _read(table: Table, location: str) -> TableMetadata | None:
    """The metadata at ``location``; None if the file is gone, damaged or another table's."""
    try:
        metadata = FromInputFile.table_metadata(table.io.new_input(location))
    except _UNREADABLE:
        return None
    return metadata if metadata.table_uuid == table.metadata.table_uuid else None


_REASON: Final = "only expired snapshots referred to it"


@dataclass(frozen=True)
class Coming:
    """The commits that a maintenance run would make before snapshots expire, but that a dry run omits."""

    moving: Collection[str] = ()
    """The branch of each snapshot that the commits add; a branch may occur several times."""
    lost: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Locations of the files that the commits remove from branches, by branch."""
    rewritten: Collection[str] = ()
    """Locations of main's manifests that the commits replace."""


@dataclass(frozen=True)
class Unreached:
    """The files that ``expired`` snapshots of ``table`` reach, but the metadata ``after`` the expiry does not."""

    table: Table
    expired: Sequence[Snapshot]
    after: TableMetadata
    coming: Coming
    contents: Contents

    def findings(self, now_ms: int, *, remove: bool) -> list[Finding]:
        """Findings about the files, which ``remove`` deletes, data files first.

        As long as a data file can't be deleted, the manifests stay, so that the next run finds the file through them.
        """
        missing: list[str] = []
        try:
            kept, rewritten = self._kept()
            listed = self.contents.manifests_of(self.expired, missing)
            manifests = np.setdiff1d(listed, kept, assume_unique=True)
            self.contents.reach_of(manifests, missing)
            read = [int(one) for one in manifests if self.contents.is_read(int(one))]
            reach = self.contents.reach_of(kept) if read else Reach.of(())
        except FileNotFoundError as error:
            unknown = UnknownReferencesError(
                f"the files of expired snapshots stay, because kept snapshots may refer to them: {error}; allowed: a "
                "table in which all manifests of all snapshots exist"
            )
            return [Finding.of_error(Kind.EXPIRED, ".".join(self.table.name()), unknown)]
        known = np.unique(np.concatenate([reach.paths, rewritten]))
        garbage: list[Finding] = []
        stores = Stores(self.table)
        for title, files, total in (
            ("data files", *self._data_files(read, known, missing)),
            ("metadata files", *self._metadata_files(read, kept, missing)),
        ):
            located = ((stores.of(location), size) for location, size in files)
            deletable: Iterator[Deletable] = ((access, Stored(path, size, None)) for (access, path), size in located)
            deleted = delete(deletable, remove=remove, title=f"deleting {title}", total=total)
            garbage += deleted.findings(Kind.EXPIRED, f"{'.'.join(self.table.name())}: {title}", _REASON, now_ms)
            if deleted.failures:
                break
        return [*map(self._stays, missing), *garbage]

    def _kept(self) -> tuple[Numbers, Hashes]:
        """The manifests that kept snapshots list, and hashes of the paths that manifests of coming commits list."""
        kept = self.contents.manifests_of(self.after.snapshots)
        paths = np.empty(0, np.int64)
        for branch in dict.fromkeys(self.coming.moving):
            head = self.table.metadata.snapshot_by_name(branch)
            lost = np.unique(Reach.of(self.coming.lost.get(branch, ())).paths)
            for manifest in self.contents.manifests_of([head] if head else []):
                own = self.contents.reach_of([manifest]).paths
                staying = own[~is_in(own, lost)]
                is_rewritten = self.contents.manifest(manifest)[0] in self.coming.rewritten
                if len(own) == len(staying) > 0 and not is_rewritten:
                    kept = np.union1d(kept, manifest)
                paths = np.concatenate([paths, staying])
        return kept, paths

    def _stays(self, location: str) -> Finding:
        reason = (
            "it is gone or damaged, so nobody can tell which files it names; those files stay, unless "
            f"orphans in firn.maintenance deletes them, once older than {OF_AGE}"
        )
        return Finding(Kind.EXPIRED, location, goes=False, reason=reason, files=0)

    def _data_files(
        self, manifests: Sequence[int], known: Hashes, missing: list[str]
    ) -> tuple[Iterator[tuple[str, int]], int]:
        """Locations and sizes of the distinct files of ``manifests`` outside the ``known`` paths, and their number.

        The location of a manifest that another maintenance run deletes meanwhile is added to ``missing``.
        """
        paths = self.contents.reach_of(manifests).paths
        first = np.zeros(len(paths), np.bool_)
        first[np.unique(paths, return_index=True)[1]] = True
        goes = first & ~is_in(paths, known)

        def files() -> Iterator[tuple[str, int]]:
            start = 0
            for manifest in manifests:
                own = goes[start : start + self.contents.count_of(manifest)]
                start += len(own)
                if not own.any():
                    continue
                try:
                    listed = self.contents.files_of(manifest)
                except FileNotFoundError:
                    missing.append(self.contents.manifest(manifest)[0])
                    continue
                yield from (file for file, does_go in zip(listed, own, strict=True) if does_go)

        return files(), int(goes.sum())

    def _metadata_files(
        self, manifests: Sequence[int], kept: Numbers, missing: Collection[str]
    ) -> tuple[Iterator[tuple[str, int]], int]:
        """Locations and sizes of the metadata files that nothing names any more, and the number of these files.

        They are manifests, manifest lists, statistics and documents; those at ``missing`` locations are left out.
        """
        ids = {one.snapshot_id for one in self.expired}
        lengths = dict(map(self.contents.manifest, manifests))
        lists = (one for one in self.expired if one.manifest_list not in missing)
        lengths |= {one.manifest_list: self.contents.list_bytes(one) for one in lists}
        before = (*self.table.metadata.statistics, *self.table.metadata.partition_statistics)
        lengths |= {one.statistics_path: one.file_size_in_bytes for one in before if one.snapshot_id in ids}
        lengths |= {location: 0 for one in self.expired if (location := document_of(one))}
        staying = {path_of(self.contents.manifest(int(one))[0]) for one in kept}
        staying |= {path_of(one.manifest_list) for one in self.after.snapshots}
        staying |= {path_of(one.statistics_path) for one in self.after.statistics}
        staying |= {path_of(one.statistics_path) for one in self.after.partition_statistics}
        staying |= {path_of(location) for one in self.after.snapshots if (location := document_of(one))}
        going = [(location, size) for location, size in lengths.items() if path_of(location) not in staying]
        return iter(going), len(going)
