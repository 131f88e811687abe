"""Rewrites many small manifests as few ordered ones, so that readers open few manifests for each topic partition.

Main lists the same files before and after. Earlier snapshots keep the old manifests, which are deleted when those
snapshots expire.
"""

import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Final

from pyiceberg.manifest import UNASSIGNED_SEQ, ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.errors import ConflictError, RefusedError
from firnlake.iceberg.branch_snapshot import Replacement, place
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.commit import Commit, CommitRequest, SnapshotIds, settle
from firnlake.iceberg.deleter import Finding, Kind
from firnlake.iceberg.manifest_entries import LAYOUT, RawManifest, RawManifestWriter
from firnlake.iceberg.manifest_writers import schema_of
from firnlake.iceberg.manifests import Manifests, ahead
from firnlake.lanes.erasure.history import Telling
from firnlake.lanes.erasure.memory import read_erasures
from firnlake.lanes.erasure.requests import Erasures
from firnlake.maintain.many_manifests import EntryOrder, ManifestLimits, Many, Places, many, telling
from firnlake.table.columns import ColumnRoles

TRIES: Final = 3
"""Number of tries: Firn starts again when another commit has meanwhile removed files from a manifest."""


def rewrite_manifests(lake: Lake, identifier: str, now_ms: int, *, remove: bool) -> list[Finding]:
    """Findings about the manifests on main that are worth rewriting; ``remove`` rewrites them in one commit.

    A manifest is small if it has less than half of ``commit.manifest.target-size-bytes``. Small manifests are worth
    rewriting if there are at least ``commit.manifest.min-count-to-merge``. Appends that land meanwhile are kept. When
    other commits keep replacing the manifests, or a manifest is damaged, the finding says so and nothing is changed.
    Raises RefusedError for an unknown table or a wrong limit, UnavailableError when catalog or store do not answer.
    """
    with lake.answering():
        garbage: list[Finding] = []
        conflict = None
        for _ in range(TRIES):
            table = lake.table(identifier)
            chosen = _chosen(table, identifier)
            garbage = [_finding(table, identifier, one, now_ms) for one in chosen]
            if not chosen or not remove:
                return garbage
            try:
                _replace(lake, identifier, table, chosen)
            except ConflictError as error:
                conflict = error
            except RefusedError as error:
                return [Finding.of_error(Kind.MANIFESTS, identifier, error)]
            else:
                return garbage
        return [
            replace(one, goes=False, reason=f"other commits were faster in all {TRIES} tries: {conflict}")
            for one in garbage
        ]


def manifests_to_rewrite(table: Table, identifier: str) -> list[str]:
    """Locations of the manifests on main of ``table`` that ``rewrite_manifests`` would replace now."""
    return [one.manifest_path for many in _chosen(table, identifier) for one in many.manifests]


def _chosen(table: Table, identifier: str) -> list[Many]:
    snapshot = table.current_snapshot()
    listed = snapshot.manifests(table.io) if snapshot else []
    chosen = many(table, listed, ManifestLimits.of(table, identifier))
    taken = {manifest.manifest_path for one in chosen for manifest in one.manifests}
    others = [one for one in listed if one.manifest_path not in taken]
    return chosen + telling(others, Telling(table, identifier, _requests(table)))


def _requests(table: Table) -> Erasures:
    """The requests to erase keys; empty if they are lost, because most manifests can be rewritten without them."""
    try:
        return read_erasures(table)
    except RefusedError:
        return Erasures()


def _finding(table: Table, identifier: str, chosen: Many, now_ms: int) -> Finding:
    kind = "delete manifests" if chosen.content == ManifestContent.DELETES else "manifests"
    times = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in table.metadata.snapshots}
    written = [times.get(one.added_snapshot_id or 0) for one in chosen.manifests]
    newest = max((at for at in written if at is not None), default=None)
    return Finding(
        Kind.MANIFESTS,
        f"{identifier} ({kind} of partition spec {chosen.spec_id})",
        goes=True,
        reason=f"rewritten in order: {chosen.reason}",
        files=len(chosen.manifests),
        bytes=sum(one.manifest_length for one in chosen.manifests),
        age_ms=None if newest is None else now_ms - newest,
    )


def _replace(lake: Lake, identifier: str, table: Table, chosen: Sequence[Many]) -> None:
    """Rewrite the ``chosen`` manifests and commit; raises ConflictError when main no longer lists them."""
    ids = SnapshotIds()
    rewriting = _Rewriting(table, identifier, ids.of(table, MAIN_BRANCH))
    for one in chosen:
        rewriting.rewrite(one)
    change = Replacement(rewriting.replaced, rewriting.written, rewriting.entries)
    commit = Commit(table, [(MAIN_BRANCH, change)], ids)

    def request(current: Table) -> CommitRequest:
        return commit.request(current, Manifests(current.io))

    if rewriting.replaced:
        settle(lake, identifier, request)


class _Rewriting:
    """Writes the new manifests of one commit, and collects the paths of the manifests that they replace."""

    def __init__(self, table: Table, identifier: str, snapshot_id: int) -> None:
        self.snapshot_id = snapshot_id
        self.replaced: list[str] = []
        self.written: list[ManifestFile] = []
        self.entries = 0
        self._table = table
        self._limits = ManifestLimits.of(table, identifier)
        ids = {field.name: field.field_id for field in table.schema().fields}
        columns = ColumnRoles.named(table, identifier)
        self._offset = ids.get(columns.offset)
        self._first = [ids.get(name) for name in (columns.topic, columns.partition, columns.level) if name]

    def rewrite(self, chosen: Many) -> None:
        """Rewrite the manifests ``chosen``; a manifest whose entries can't be copied as bytes stays as it is."""
        fields = self._fields(self._table.specs()[chosen.spec_id])
        newest_first = sorted(chosen.manifests, key=lambda manifest: -manifest.sequence_number)
        with ExitStack() as opened:
            # Each layout of entries needs separate manifests, with the metadata of the newest manifest of that layout.
            orders: dict[str, tuple[EntryOrder, Mapping[str, str]]] = {}
            for manifest, content in ahead(partial(RawManifest.fetch, self._table.io), newest_first):
                if not content.is_known:
                    continue
                layout = content.metadata[LAYOUT]
                if layout not in orders:
                    orders[layout] = opened.enter_context(EntryOrder(fields, self._offset)), content.metadata
                for entry in content.entries():
                    orders[layout][0].add(entry)
                self.replaced.append(manifest.manifest_path)
            for entries, metadata in orders.values():
                self._write(chosen, entries, metadata)

    def _fields(self, spec: PartitionSpec) -> list[int]:
        """The positions of the fields of ``spec`` to order by: topic, partition and level first, then the others."""
        sources = [field.source_id for field in spec.fields]
        first = [sources.index(source) for source in self._first if source in sources]
        return [*first, *(number for number in range(len(sources)) if number not in first)]

    def _write(self, chosen: Many, entries: EntryOrder, metadata: Mapping[str, str]) -> None:
        """Write ``entries`` in order, to one manifest or, beyond the limits, to several."""
        order = entries.order()
        start = 0
        while start < len(order):
            location = place(self._table, f"{uuid.uuid4()}-m0.avro")
            end = start
            output = self._table.io.new_output(location)
            with RawManifestWriter(output, metadata, self._limits.block_bytes) as writer:
                for number in order[start:]:
                    writer.add(entries.content(number))
                    end += 1
                    if self._limits.is_reached(writer.bytes, end - start):
                        break
            self.written.append(self._listed(chosen, entries, order[start:end], location, writer.bytes))
            start = end
        self.entries += len(order)

    def _listed(self, chosen: Many, entries: EntryOrder, own: Places, location: str, size: int) -> ManifestFile:
        """The manifest list's entry for the manifest at ``location``, of ``size`` bytes, with the entries ``own``."""
        spec = self._table.specs()[chosen.spec_id]
        return ManifestFile.from_args(
            manifest_path=location,
            manifest_length=size,
            partition_spec_id=chosen.spec_id,
            content=chosen.content,
            sequence_number=UNASSIGNED_SEQ,
            min_sequence_number=entries.oldest(own),
            added_snapshot_id=self.snapshot_id,
            added_files_count=0,
            existing_files_count=len(own),
            deleted_files_count=0,
            added_rows_count=0,
            existing_rows_count=entries.records(own),
            deleted_rows_count=0,
            partitions=entries.partitions(own, spec, schema_of(self._table, spec)),
        )
