"""The files that a table has named before: certainly its own, whoever expired the snapshots that reached them.

Its earlier metadata files tell, as far as they are there: they name each other, and lead to lists and manifests of
snapshots that are in the metadata no more. A file that none of them names may be another table's, or belong to a life
of this table in another catalog.
"""

import zlib
from collections.abc import Collection, Iterable, Iterator
from gzip import BadGzipFile
from typing import Final

import numpy as np
from pyiceberg.exceptions import ValidationError
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from pipeline.care.contents import Contents, Hashes, Reach
from pipeline.care.references import is_in
from pipeline.history.published_plans import document_of
from pipeline.lake.paths import path_of

_UNREADABLE: Final = (FileNotFoundError, ValidationError, ValueError, EOFError, BadGzipFile, zlib.error)
"""Errors of a metadata file that is gone or damaged; any other means that the store does not answer."""


def named_once(table: Table, contents: Contents, paths: Collection[str]) -> set[str]:
    """Those of ``paths`` on the store that an earlier metadata file of ``table`` names, or a snapshot in it reaches.

    Metadata files, lists and manifests that are gone or damaged name nothing.
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
    """Locations of everything that ``snapshots`` reach, but for the data files of manifests without any of ``hashes``:
    those are not read again to tell their locations."""
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
    """Yield the metadata files before that of ``table``, newest first: all that its log names, then the oldest that is
    left of each one's log.

    So a snapshot is met that was in the metadata for as many commits as a log names (100 by default); reading every
    file would take hours on a busy table.
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
    """The metadata at ``location``; None where it is gone, damaged or another table's."""
    try:
        metadata = FromInputFile.table_metadata(table.io.new_input(location))
    except _UNREADABLE:
        return None
    return metadata if metadata.table_uuid == table.metadata.table_uuid else None
