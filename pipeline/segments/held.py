"""Which data files the snapshots of tables hold, current and past: one that none holds can't be read by anybody."""

from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from pipeline.segments.manifests import READERS


class Unheld:
    """Names of data files, less those that a snapshot holds of any table that was looked at.

    Manifests never change, so each is read once: looking again reads what was committed meanwhile.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._names = {name_of(path) for path in paths}
        self._read: set[str] = set()

    def __contains__(self, path: str) -> bool:
        """Whether no snapshot holds the file at ``path``."""
        return name_of(path) in self._names

    def keep(self, paths: Iterable[str]) -> None:
        """Take ``paths`` away, whoever holds them."""
        self._names.difference_update(map(name_of, paths))

    def look(self, table: Table, without: Collection[int] = ()) -> None:
        """Take away what the snapshots of ``table`` hold, but for those whose ids are in ``without``.

        Raises FileNotFoundError when a manifest is gone: another process has expired its snapshot.
        """
        if not self._names:
            return
        fresh = [
            snapshot
            for snapshot in table.metadata.snapshots
            if snapshot.snapshot_id not in without and snapshot.manifest_list not in self._read
        ]

        def held_by(manifest: ManifestFile) -> set[str]:
            # Entries are dropped as soon as they are looked at: those of all manifests together would be large.
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            return self._names.intersection(name_of(entry.data_file.file_path) for entry in entries)

        with ThreadPoolExecutor(READERS) as readers:
            listed = readers.map(lambda snapshot: snapshot.manifests(table.io), fresh)
            manifests = {manifest.manifest_path: manifest for own in listed for manifest in own}
            unread = [manifest for path, manifest in manifests.items() if path not in self._read]
            held = set().union(*readers.map(held_by, unread))
        self._names -= held
        self._read.update(manifests, (snapshot.manifest_list for snapshot in fresh))


def name_of(path: str) -> str:
    """The last part of a path. Writers put a UUID there, so it tells files apart, and unlike the rest of a path it is
    spelled the same by everyone: Java writes ``file:/a``, PyIceberg ``file:///a``, a file system ``/a``.
    A checksum that Hadoop's local file system keeps beside a file (``.<name>.crc``) stays and goes with it.
    """
    name = path.rpartition("/")[2]
    return name[1:-4] if name.startswith(".") and name.endswith(".crc") else name
