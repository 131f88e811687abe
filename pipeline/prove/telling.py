"""Manifests that may tell keys which are to be erased, by the bounds of files that were removed (C30)."""

from collections.abc import Collection
from functools import cached_property

from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table

from pipeline.erase.requests import Erasures
from pipeline.history.ancestors import ancestors
from pipeline.lake.columns import Columns
from pipeline.prove.bounds import Bounds, Entry
from pipeline.prove.wanted import Wanted


class Telling:
    """Tells for each manifest of ``table`` whether it may tell a key of a request that has no certificate."""

    def __init__(self, table: Table, identifier: str, erasures: Erasures) -> None:
        self._table = table
        self._identifier = identifier
        self._erasures = erasures
        self._known: dict[str, bool] = {}

    def tells(self, manifest: ManifestFile) -> bool:
        """True when an entry of a removed file keeps such bounds; a manifest that is gone tells nothing."""
        if not manifest.deleted_files_count or not self._open:
            return False
        path = manifest.manifest_path
        if path not in self._known:
            self._known[path] = self._looked(manifest)
        return self._known[path]

    def newest_past(self, least: int, rewritten: Collection[str] = ()) -> int:
        """Sequence number of the newest snapshot of main that lists such a manifest and has a sequence number of
        ``least`` or more; 0 without one. What the head lists stays anyway, unless it is about to be ``rewritten``."""
        line = list(ancestors(self._table))
        kept = {one.manifest_path for one in line[0].manifests(self._table.io)}.difference(rewritten)
        for snapshot in line:
            number = snapshot.sequence_number or 0
            if number < least:
                return 0
            listed = snapshot.manifests(self._table.io)
            if any(one.manifest_path not in kept and self.tells(one) for one in listed):
                return number
        return 0

    @property
    def _open(self) -> bool:
        return any(self._erasures.certificate_of(one) is None for one in self._erasures.ids)

    @cached_property
    def _bounds(self) -> Bounds:
        known = self._erasures
        rows = [row for one in known.ids if known.certificate_of(one) is None for row in known.rows_of(one)]
        columns = Columns.named(self._table, self._identifier)
        return Bounds(self._table, columns, Wanted(known.secret, rows))

    def _looked(self, manifest: ManifestFile) -> bool:
        try:
            entries = manifest.fetch_manifest_entry(self._table.io, discard_deleted=False)
        except FileNotFoundError:
            return False
        files = [one.data_file for one in entries if one.status == ManifestEntryStatus.DELETED]
        gone = (Entry(one.file_path, one.lower_bounds or {}, one.upper_bounds or {}, None) for one in files)
        return next(self._bounds.concern(gone), None) is not None
