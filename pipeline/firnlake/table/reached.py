"""The files that a table's metadata reach, by name: no file of such a name is deleted (C29).

One file may have several paths, because a store may have links and aliases. Therefore a reference protects every file
of its name. Each manifest list or manifest is read at most once, because it never changes.
"""

import gzip
import json
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final, NoReturn

from pyarrow.fs import FileSystem
from pydantic import ValidationError
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

from firnlake.errors import RefusedError, UnavailableError
from firnlake.iceberg.catalog import Lake, retried_load
from firnlake.iceberg.files import Stored, files_in, name_of, store
from firnlake.iceberg.manifests import DAMAGED, ahead, fetch, records
from firnlake.table.history import document_of

METADATA_FILE: Final = re.compile(r"(?:v?([0-9]+))?.*\.metadata\.json(?:\.gz)?")
"""The name of a metadata file, and its number, by which later ones are higher; some catalogs give it no number."""
_VERSION_HINT: Final = "version-hint.text"
"""Name of the file by which a Hadoop catalog names the current version."""
_LIST: Final = (500, 501)
"""Field ids in a manifest list: path and length of a manifest (Iceberg spec, "Manifest Lists")."""
_ENTRY: Final = (0, 100, 104)
"""Field ids in a manifest: status of an entry, path and size of its file (Iceberg spec, "Manifests")."""
_DELETED: Final = int(ManifestEntryStatus.DELETED)
_TRIES: Final = 5


class UnknownReferencesError(UnavailableError):
    """A manifest or a manifest list is gone, so the files that its snapshot refers to are unknown."""


class Contents:
    """The manifests that manifest lists name, and the live files that manifests name.

    Methods add the location of a manifest list or manifest that is gone or damaged to ``missing``, with the reason.
    """

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._manifests: dict[tuple[str, int], tuple[str, int]] = {}
        self._lists: dict[str, tuple[int, list[tuple[str, int]]]] = {}
        self._names: dict[str, AbstractSet[str]] = {}

    def manifests_of(self, snapshots: Iterable[Snapshot], missing: dict[str, str]) -> Mapping[str, int]:
        """The manifests that ``snapshots`` list: their sizes in bytes, as manifest lists state them, by location."""
        lists = list(dict.fromkeys(one.manifest_list for one in snapshots))
        for location, size, rows in self._read((one for one in lists if one not in self._lists), _LIST, missing):
            # Snapshots list mostly the same manifests, so each is kept in memory once.
            manifests = ((path, length) for path, length in rows)
            self._lists[location] = size, [self._manifests.setdefault(one, one) for one in manifests]
        return dict(chain.from_iterable(self._lists[one][1] for one in lists if one in self._lists))

    def list_bytes(self, snapshot: Snapshot) -> int:
        """Size in bytes of the manifest list of ``snapshot``; 0 if the list could not be read."""
        return self._lists[snapshot.manifest_list][0] if snapshot.manifest_list in self._lists else 0

    def names_in(self, manifests: Mapping[str, int], missing: dict[str, str]) -> set[str]:
        """The names of the live files in ``manifests``: sizes by location."""
        unread = {location: size for location, size in manifests.items() if location not in self._names}
        for location, files in self.files_in(unread, missing):
            self._names[location] = _names(files)
        return set().union(*(self._names[one] for one in manifests if one in self._names))

    def files_in(
        self, manifests: Mapping[str, int], missing: dict[str, str]
    ) -> Iterator[tuple[str, Mapping[str, int]]]:
        """Yield the location of each readable one of ``manifests``, and the sizes of its live files by location."""
        for location, size, rows in self._read(manifests, _ENTRY, missing):
            if size < manifests[location]:
                missing[location] = "it is shorter than its manifest list states"
            else:
                yield location, {path: length for status, path, length in rows if status != _DELETED}

    def _read(
        self, locations: Iterable[str], columns: tuple[int, ...], missing: dict[str, str]
    ) -> Iterator[tuple[str, int, list[Sequence[Any]]]]:
        """Yield the location, the size in bytes and the records of each readable file at ``locations``."""
        for location, content in ahead(partial(_fetch_if_any, self._io), locations):
            if content is None:
                missing[location] = "it is gone"
                continue
            try:
                rows = list(records(content, columns))
            except DAMAGED as error:
                missing[location] = f"it is damaged: {error}"
            else:
                yield location, len(content), rows


def _fetch_if_any(io: FileIO, location: str) -> bytes | None:
    try:
        return fetch(io, location)
    except FileNotFoundError:
        return None


def _names(locations: Iterable[str]) -> set[str]:
    return set(map(name_of, locations))


@dataclass(frozen=True)
class Reached:
    """Everything that the metadata of ``table`` reach: its current metadata, and those of ``others``."""

    table: Table
    names: AbstractSet[str]
    """The names of the files."""
    leaving: AbstractSet[str]
    """The names of all files that snapshots reach which are about to expire, as far as they can be read."""
    others: Collection[str]
    """Locations of metadata files of this table that its log does not name: those of another catalog, or of a commit
    that may still be applied. Nobody knows which, so what they reach stays as long as they are there."""

    @classmethod
    def look(cls, lake: Lake, identifier: str, contents: Contents, leaving: Collection[int] = ()) -> "Reached":
        """What is reached now, without the snapshots with the ids ``leaving``, which are about to expire.

        Raises RefusedError when the catalog's answer and the table's metadata file differ; UnknownReferencesError when
        a manifest is gone or damaged at every try.
        """
        attempts = Retrying(
            retry=retry_if_exception_type(FileNotFoundError),  # another process has expired snapshots meanwhile
            stop=stop_after_attempt(_TRIES),
            retry_error_callback=_unknown,
        )
        return attempts(cls._look, lake, identifier, contents, leaving)

    @classmethod
    def _look(cls, lake: Lake, identifier: str, contents: Contents, leaving: Collection[int]) -> "Reached":
        # Metadata files are listed before the table is loaded, so that its log names those of earlier commits.
        before = lake.table(identifier)
        folder = before.metadata_location.rpartition("/")[0]
        listed = files_in(*store(before, folder), recursive=False)
        table = whole_table(lake, identifier)
        others = _other_metadata(table, folder, [name_of(one.path) for one in listed])
        expiring = [one for one in table.metadata.snapshots if one.snapshot_id in leaving]
        kept = [one for one in table.metadata.snapshots if one.snapshot_id not in leaving]
        statistics = statistics_of(table.metadata)
        locations = [
            *(one.statistics_path for one in statistics if one.snapshot_id not in leaving),
            *chain.from_iterable(map(_statistics, others.values())),
            table.metadata_location,
            *others,
            _VERSION_HINT,
        ]
        unknown: dict[str, str] = {}
        names = _names(locations) | _names_of(table.metadata, kept, contents, unknown)
        for location, reason in unknown.items():
            raise FileNotFoundError(f"{location}: {reason}")
        for metadata in others.values():
            names |= _names_of(metadata, metadata.snapshots, contents, {})
        gone = _names_of(table.metadata, expiring, contents, {}) | _names(_statistics(table.metadata))
        return cls(table, names, gone, tuple(others))

    def unreached(self, files: Sequence[Stored]) -> list[Stored]:
        """Those of ``files`` whose names nothing reaches, not even a snapshot that is about to expire."""
        named = ((file, name_of(file.path)) for file in files)
        return [file for file, name in named if name not in self.names and name not in self.leaving]

    def expired(self, files: Mapping[str, int]) -> dict[str, int]:
        """Those of ``files``, sizes by location, that nothing will reach once the leaving snapshots are gone."""
        return {location: size for location, size in files.items() if name_of(location) not in self.names}


def metadata_locations(table: Table) -> list[str]:
    """Locations of the metadata files of ``table``, oldest first: those in its log, and the current one."""
    return [*(one.metadata_file for one in table.metadata.metadata_log), table.metadata_location]


def statistics_of(metadata: TableMetadata) -> list[StatisticsFile | PartitionStatisticsFile]:
    """All statistics files that ``metadata`` name, of the table and of its partitions."""
    return [*metadata.statistics, *metadata.partition_statistics]


def _names_of(
    metadata: TableMetadata, snapshots: Sequence[Snapshot], contents: Contents, missing: dict[str, str]
) -> set[str]:
    """The names of the files that ``snapshots`` in ``metadata`` reach, and of its former metadata files."""
    manifests = contents.manifests_of(snapshots, missing)
    locations = (
        *manifests,
        *(one.manifest_list for one in snapshots),
        *filter(None, map(document_of, snapshots)),
        *(one.metadata_file for one in metadata.metadata_log),
    )
    return contents.names_in(manifests, missing) | _names(locations)


def _other_metadata(table: Table, folder: str, listed: Iterable[str]) -> Mapping[str, TableMetadata]:
    """The metadata files of ``table`` among the ``listed`` names in ``folder`` that its log does not name, by location.

    Those with a lower number than the log's oldest were named once.
    """
    named = {name_of(one) for one in metadata_locations(table)}
    oldest = min((int(match[1]) for one in named if (match := METADATA_FILE.fullmatch(one)) and match[1]), default=0)
    access, path = store(table, folder)
    found = {}
    for name in sorted(set(listed) - named):
        match = METADATA_FILE.fullmatch(name)
        if not match or (match[1] and int(match[1]) < oldest):
            continue
        text, table_uuid = metadata_at(access, f"{path}/{name}")
        if table_uuid == str(table.metadata.table_uuid).lower():
            try:
                found[f"{folder}/{name}"] = TableMetadataUtil.parse_raw(text)
            except ValidationError as error:
                raise RefusedError(
                    f"table {'.'.join(table.name())}: nothing is deleted, because its metadata file {folder}/{name} "
                    f"can't be read: {error.errors()[0]['msg']}; allowed: none that is damaged"
                ) from error
    return found


def metadata_at(access: FileSystem, path: str) -> tuple[str, str]:
    """The text of the metadata file at ``path``, and the table UUID in it in lower case; both are empty if the file is
    gone or torn, as then no table uses it."""
    try:
        # Arrow unpacks a file by the suffix of its name, which Iceberg's `.gz.metadata.json` hides.
        with access.open_input_stream(path, compression=None) as stream:
            content = stream.read()
        text = (gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content).decode()
        found = json.loads(text)
    except (FileNotFoundError, EOFError, gzip.BadGzipFile, zlib.error, ValueError):
        return "", ""
    return (text, str(found.get("table-uuid")).lower()) if isinstance(found, dict) else ("", "")


@retried_load
def whole_table(lake: Lake, identifier: str) -> Table:
    """Load table ``identifier``. Raises RefusedError when the catalog's answer and the table's metadata file differ,
    FileNotFoundError when the metadata file is gone in every try."""
    table = lake.table(identifier)
    if not table.metadata_location:
        raise RefusedError(
            f"table {identifier}: catalog {lake.name} does not name the table's metadata file, so nothing is deleted; "
            "allowed: a catalog that names it"
        )
    stored = FromInputFile.table_metadata(table.io.new_input(table.metadata_location))
    if differing := [what for what, facts in _REACHING.items() if facts(table.metadata) != facts(stored)]:
        raise RefusedError(
            f"table {identifier}: nothing is deleted, because catalog {lake.name} and the metadata file "
            f"{table.metadata_location} differ in their {', '.join(differing)}; allowed: a catalog that loads the "
            "whole content of metadata files (snapshot-loading-mode: all)"
        )
    return table


def _statistics(metadata: TableMetadata) -> set[str]:
    return {one.statistics_path for one in statistics_of(metadata)}


_REACHING: Final[Mapping[str, Callable[[TableMetadata], object]]] = {
    "table UUID": lambda metadata: metadata.table_uuid,
    "snapshots": lambda metadata: {one.snapshot_id: one.manifest_list for one in metadata.snapshots},
    "references": lambda metadata: {name: ref.snapshot_id for name, ref in metadata.refs.items()},
    "statistics": _statistics,
}
"""What metadata reach files by."""


def _unknown(state: RetryCallState) -> NoReturn:
    error = state.outcome.exception() if state.outcome else None
    raise UnknownReferencesError(
        f"can't read which files its snapshots refer to: {error}; allowed: a table whose snapshots have all their "
        "manifests (if a snapshot is being expired, try again later)"
    ) from error
