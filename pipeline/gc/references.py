"""References of a table's snapshots, current and past, on every branch and tag; no reader can reach other files."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

from pipeline.errors import UnavailableError
from pipeline.history.published_plans import document_of
from pipeline.lake import Lake
from pipeline.lake.manifests import READERS

TRIES: Final = 5


class Unreferenced:
    """Names of files that no snapshot refers to: data files, and lists of published plans.

    Manifests never change, so each is read once; another look reads only new ones.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._names = {name_of(path) for path in paths}
        self._read: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._names)

    def __contains__(self, path: str) -> bool:
        """True when no inspected snapshot refers to the file at ``path``."""
        return name_of(path) in self._names

    def look(self, lake: Lake, identifier: str, *, past: bool = True) -> Table:
        """Remove the names that table ``identifier`` now refers to, with or without past snapshots; returns that table.

        Raises UnavailableError when snapshots keep expiring during the read, which leaves references unknown.
        """
        attempts = Retrying(
            # Another process is expiring snapshots and their manifests.
            retry=retry_if_exception_type(FileNotFoundError),
            stop=stop_after_attempt(TRIES),
            retry_error_callback=_unknown,
        )
        return attempts(self._look, lambda: lake.table(identifier), past)

    def _look(self, load: Callable[[], Table], past: bool) -> Table:
        table = load()
        heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
        snapshots = [one for one in table.metadata.snapshots if past or one.snapshot_id in heads]
        self._names.difference_update(filter(None, map(document_of, snapshots)))
        fresh = [one for one in snapshots if one.manifest_list not in self._read] if self._names else []

        def referred_by(manifest: ManifestFile) -> set[str]:
            # Entries are dropped at once: those of all manifests together would be large.
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            return self._names.intersection(name_of(entry.data_file.file_path) for entry in entries)

        with ThreadPoolExecutor(READERS) as readers:
            listed = readers.map(lambda snapshot: snapshot.manifests(table.io), fresh)
            manifests = {manifest.manifest_path: manifest for own in listed for manifest in own}
            unread = [manifest for path, manifest in manifests.items() if path not in self._read]
            found = set().union(*readers.map(referred_by, unread))
        self._names -= found
        self._read.update(manifests, (snapshot.manifest_list for snapshot in fresh))
        return table


def name_of(path: str) -> str:
    """The last part of a path. Writers put a UUID there, so it identifies a file.

    Unlike the rest of a path, every writer spells it the same: Java writes ``file:/a``, PyIceberg ``file:///a``, a file
    system ``/a``. The checksum that Hadoop's local file system keeps beside a file (``.<name>.crc``) stays and goes
    with it.
    """
    name = path.rpartition("/")[2]
    return name[1:-4] if name.startswith(".") and name.endswith(".crc") else name


def _unknown(state: RetryCallState) -> Table:
    error = state.outcome.exception() if state.outcome else None
    raise UnavailableError(
        f"what snapshots refer to can't be told: {error}; allowed: all manifests of all snapshots there (is one being "
        "expired? try again later)"
    ) from error
