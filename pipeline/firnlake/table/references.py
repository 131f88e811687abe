"""The files to which a table's snapshots, current and past, refer on all branches and tags; readers need no others."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from firnlake.errors import RefusedError, UnavailableError
from firnlake.iceberg.catalog import METADATA_TRIES, Lake
from firnlake.iceberg.files import name_of, path_of
from firnlake.iceberg.referenced_files import Contents, Hashes, Reach
from firnlake.table.history import document_of


def whole_table(lake: Lake, identifier: str) -> Table:
    """Load table ``identifier``. Raises RefusedError when the catalog's answer and the table's metadata file differ.

    Raises FileNotFoundError when the metadata file is gone in every try. There are several tries, because commits may
    delete old metadata files (``write.metadata.delete-after-commit.enabled``).
    """
    attempts = Retrying(
        retry=retry_if_exception_type(FileNotFoundError),
        stop=stop_after_attempt(METADATA_TRIES),
        wait=wait_random_exponential(multiplier=0.02, max=0.2),
        reraise=True,
    )
    return attempts(_checked, lake, identifier)


def _checked(lake: Lake, identifier: str) -> Table:
    table = lake.table(identifier)
    if not table.metadata_location:
        raise RefusedError(
            f"table {identifier}: catalog {lake.name} does not name the table's metadata file, so nothing is deleted; "
            "allowed: a catalog that names it"
        )
    stored = FromInputFile.table_metadata(table.io.new_input(table.metadata_location))
    if differences := "; ".join(_differences(table.metadata, stored)):
        raise RefusedError(
            f"table {identifier}: nothing is deleted, because catalog {lake.name} and the metadata file "
            f"{table.metadata_location} differ: {differences}; allowed: a catalog that loads the whole content of "
            "metadata files (snapshot-loading-mode: all)"
        )
    return table


def _differences(loaded: TableMetadata, stored: TableMetadata) -> Iterator[str]:
    if loaded.table_uuid != stored.table_uuid:
        yield f"table UUID {loaded.table_uuid} in the catalog, {stored.table_uuid} in the file"
    for what, ours, theirs in (
        ("snapshots", _manifest_lists(loaded).keys(), _manifest_lists(stored).keys()),
        ("manifest lists", _manifest_lists(loaded).items(), _manifest_lists(stored).items()),
        ("references", _references(loaded).items(), _references(stored).items()),
        ("statistics", _statistics(loaded), _statistics(stored)),
    ):
        if ours != theirs:
            yield f"{what}: {len(ours - theirs)} only in the catalog, {len(theirs - ours)} only in the file"
            return


def _manifest_lists(metadata: TableMetadata) -> Mapping[int, str]:
    return {one.snapshot_id: one.manifest_list for one in metadata.snapshots}


def _references(metadata: TableMetadata) -> Mapping[str, int]:
    return {name: ref.snapshot_id for name, ref in metadata.refs.items()}


def _statistics(metadata: TableMetadata) -> set[str]:
    return {one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics)}


T = TypeVar("T")

TRIES: Final = 5


class UnknownReferencesError(UnavailableError):
    """A manifest or a manifest list is gone, so the files that its snapshot refers to are unknown."""


@dataclass(frozen=True)
class Known:
    """References of a table's metadata, read before the table's files are listed."""

    reached: Hashes
    """Hashes of the paths of all files that the metadata refers to, sorted."""
    beside_main: Hashes
    """Hashes of the paths of data files that past snapshots, branches or tags refer to, but not main; sorted."""
    metadata_files: Collection[str]
    """Names of the table's current metadata file and of the metadata files in its log."""


class Unreferenced:
    """Paths that nothing in a table's metadata refers to.

    A reference protects the file at its path. If no file is listed at that path, the reference protects every file with
    the same name, because one file may have several paths: Firn can't recognize links and aliases in a store.
    """

    def __init__(self, paths: Iterable[str], contents: Contents | None = None, listed: Hashes | None = None) -> None:
        """``listed`` has the hashes of all paths at which a file was found; by default, the hashes of ``paths``."""
        self._paths = {path: (hash(path_of(path)), hash(name_of(path))) for path in paths}
        own = np.fromiter((one for one, _ in self._paths.values()), np.int64, len(self._paths))
        self._listed = np.unique(own if listed is None else listed)
        self._contents = contents

    def __bool__(self) -> bool:
        return bool(self._paths)

    def __contains__(self, path: str) -> bool:
        """True when no inspected snapshot refers to the file at ``path``."""
        return path in self._paths

    def look(self, lake: Lake, identifier: str) -> Table:
        """Remove from this object the paths that table ``identifier`` now refers to; return the table.

        Raises UnavailableError when snapshots keep expiring during the read.
        """
        return _while_expiring(lambda: self._look(whole_table(lake, identifier)))

    def _look(self, table: Table) -> Table:
        if self._paths:
            self._contents = self._contents or Contents(table.io)
            for reach in reached(table.metadata, self._contents):
                self._drop(reach)
        return table

    def _drop(self, reach: Reach) -> None:
        paths = np.unique(reach.paths)
        elsewhere = np.unique(reach.names[~is_in(reach.paths, self._listed)])
        own = np.array(list(self._paths.values()), np.int64).reshape(-1, 2)
        held = is_in(own[:, 0], paths) | is_in(own[:, 1], elsewhere)
        self._paths = {
            path: hashes for (path, hashes), is_held in zip(self._paths.items(), held, strict=True) if not is_held
        }


def known_files(lake: Lake, identifier: str, contents: Contents, former: Iterable[str]) -> tuple[Table, Known]:
    """Table ``identifier`` as it is now, and the references of its metadata.

    ``former`` are the locations of former metadata files. Raises UnknownReferencesError when a manifest is gone at
    every try.
    """

    def look() -> tuple[Table, Known]:
        table = whole_table(lake, identifier)
        files, others = reached(table.metadata, contents)
        main = table.current_snapshot()
        current = contents.reach_of(contents.manifests_of([main] if main else []))
        known = np.unique(np.concatenate([files.paths, others.paths]))
        beside_main = np.setdiff1d(files.paths, current.paths)
        return table, Known(known, beside_main, frozenset(map(name_of, [*metadata_locations(table), *former])))

    return _while_expiring(look)


def metadata_locations(table: Table) -> list[str]:
    """Locations of the metadata files of ``table``, oldest first: those in its log, and the current one."""
    return [*(one.metadata_file for one in table.metadata.metadata_log), table.metadata_location]


def reached(metadata: TableMetadata, contents: Contents) -> Iterator[Reach]:
    """Yield everything that ``metadata`` refers to, in two parts: first the files that manifests name, then manifests,
    manifest lists, statistics and documents of plans."""
    manifests = contents.manifests_of(metadata.snapshots)
    yield contents.reach_of(manifests)
    lists = (one.manifest_list for one in metadata.snapshots)
    statistics = (one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics))
    documents = filter(None, map(document_of, metadata.snapshots))
    yield Reach.of([*(contents.manifest(one)[0] for one in manifests), *lists, *statistics, *documents])


def is_in(hashes: Hashes, known: Hashes) -> npt.NDArray[np.bool_]:
    """A flag for each of ``hashes``, true if the hash is in ``known``, which is sorted."""
    if not len(known):
        return np.zeros(len(hashes), np.bool_)
    places = np.searchsorted(known, hashes)
    hits: npt.NDArray[np.bool_] = known[np.minimum(places, len(known) - 1)] == hashes
    return hits


def _while_expiring(look: Callable[[], T]) -> T:
    """Call ``look``, which loads the table. Repeat the call if another process has expired snapshots during it."""
    attempts = Retrying(
        retry=retry_if_exception_type(FileNotFoundError),
        stop=stop_after_attempt(TRIES),
        retry_error_callback=_unknown,
    )
    return attempts(look)


def _unknown(state: RetryCallState) -> NoReturn:
    error = state.outcome.exception() if state.outcome else None
    raise UnknownReferencesError(
        f"can't read which files its snapshots refer to: {error}; allowed: a table whose snapshots have all their "
        "manifests (if a snapshot is being expired, try again later)"
    ) from error
