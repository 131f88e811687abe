"""Merges small manifests of data files, so that readers open few of them.

Main lists the same files before and after. Earlier snapshots keep the old manifests, which are deleted when those
snapshots expire. As long as a request to erase keys is open, manifests are copied without their entries of removed
files, those of delete files too, because the bounds in such an entry may be a key (C30).
"""

import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pyiceberg.manifest import ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.errors import ConflictError, RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import BranchChange, is_live, place
from firnlake.iceberg.commit import Commit, CommitRequest, SnapshotIds, settle
from firnlake.iceberg.deleter import Finding, Kind
from firnlake.iceberg.manifest_writers import keeps_every_field, manifest_writer, without
from firnlake.iceberg.manifests import Manifests, ahead, checked_entries
from firnlake.lanes.erasure.requests import open_requests

TRIES: Final = 3
"""Number of tries: Firn starts again when another commit has meanwhile removed files from a manifest."""


def rewrite_manifests(lake: Lake, identifier: str, now_ms: int, *, remove: bool) -> list[Finding]:
    """Findings about the manifests on main that are worth rewriting; ``remove`` rewrites them in one commit.

    A manifest is small if it has less than half of ``commit.manifest.target-size-bytes``. Small manifests of data files
    are merged if there are at least ``commit.manifest.min-count-to-merge`` of one partition spec. Appends that land
    meanwhile are kept. When other commits keep replacing the manifests, or a manifest is damaged, the finding says so
    and nothing is changed. Raises RefusedError for an unknown table or a wrong limit, UnavailableError when catalog or
    store do not answer.
    """
    with lake.answering():
        findings: list[Finding] = []
        conflict = None
        for _ in range(TRIES):
            table = lake.table(identifier)
            limits = _Limits.of(table, identifier)
            try:
                chosen = _chosen(table, limits)
                findings = [_finding(table, identifier, one, now_ms) for one in chosen]
                if remove:
                    _replace(lake, identifier, table, chosen, limits.target_bytes)
            except ConflictError as error:
                conflict = error
            except RefusedError as error:
                return [Finding.of_error(Kind.MANIFESTS, identifier, error)]
            else:
                return findings
        return [
            replace(one, goes=False, reason=f"other commits were faster in all {TRIES} tries: {conflict}")
            for one in findings
        ]


@dataclass(frozen=True)
class _Limits:
    """Iceberg's table properties for the target size of a manifest, and the number of small manifests worth a merge."""

    target_bytes: int
    min_count: int

    @classmethod
    def of(cls, table: Table, identifier: str) -> "_Limits":
        """The limits of ``table``; raises RefusedError for a property that is not a positive number."""
        names = TableProperties
        return cls(
            _positive(table, identifier, names.MANIFEST_TARGET_SIZE_BYTES, names.MANIFEST_TARGET_SIZE_BYTES_DEFAULT),
            _positive(table, identifier, names.MANIFEST_MIN_MERGE_COUNT, names.MANIFEST_MIN_MERGE_COUNT_DEFAULT),
        )


@dataclass(frozen=True)
class _Group:
    """Manifests to rewrite, all of one partition spec and one content (data or deletes), and the reason to do so."""

    manifests: Sequence[ManifestFile]
    reason: str
    is_merged: bool
    """True if the manifests are merged; False if each of them is copied without its entries of removed files."""


def _chosen(table: Table, limits: _Limits) -> list[_Group]:
    """The manifests on main that are worth rewriting.

    Encrypted manifests stay as they are, and so do manifests of format version 1, whose entries have no sequence
    numbers.
    """
    snapshot = table.current_snapshot()
    listed = snapshot.manifests(table.io) if snapshot else []
    candidates = [one for one in listed if one.sequence_number and one.key_metadata is None]
    merged = _small(table, candidates, limits)
    taken = {one.manifest_path for group in merged for one in group.manifests}
    return merged + _with_removed(table, [one for one in candidates if one.manifest_path not in taken])


def _small(table: Table, candidates: Sequence[ManifestFile], limits: _Limits) -> list[_Group]:
    """Small manifests of data files, in the order in which they are listed; of each partition spec enough or none.

    Manifests of other writers stay as they are if their entries have fields that PyIceberg's writer would drop.
    """
    groups: defaultdict[int, list[ManifestFile]] = defaultdict(list)
    for manifest in candidates:
        if manifest.content == ManifestContent.DATA and 2 * manifest.manifest_length < limits.target_bytes:
            groups[manifest.partition_spec_id].append(manifest)
    least = max(limits.min_count, 2)
    merged = []
    for small in groups.values():
        if len(small) >= least:
            small = [one for one, is_kept in ahead(partial(keeps_every_field, table), small) if is_kept]
        if len(small) >= least:
            name = TableProperties.MANIFEST_MIN_MERGE_COUNT
            reason = f"merged: {len(small)} small manifests; {name} is {limits.min_count}"
            merged.append(_Group(small, reason, is_merged=True))
    return merged


def _with_removed(table: Table, candidates: Sequence[ManifestFile]) -> list[_Group]:
    """Manifests that list removed files, if a request to erase keys is open."""
    listing = [manifest for manifest in candidates if manifest.deleted_files_count]
    groups: defaultdict[tuple[int, ManifestContent], list[ManifestFile]] = defaultdict(list)
    for manifest in listing if listing and open_requests(table) else ():
        groups[manifest.partition_spec_id, manifest.content].append(manifest)
    reason = "copied without removed files, whose bounds may reveal keys to erase"
    return [_Group(manifests, reason, is_merged=False) for manifests in groups.values()]


def _finding(table: Table, identifier: str, group: _Group, now_ms: int) -> Finding:
    first = group.manifests[0]
    kind = "delete manifests" if first.content == ManifestContent.DELETES else "manifests"
    times = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in table.metadata.snapshots}
    written = [times.get(one.added_snapshot_id or 0) for one in group.manifests]
    newest = max((at for at in written if at is not None), default=None)
    return Finding(
        Kind.MANIFESTS,
        f"{identifier} ({kind} of partition spec {first.partition_spec_id})",
        goes=True,
        reason=group.reason,
        files=len(group.manifests),
        bytes=sum(one.manifest_length for one in group.manifests),
        age_ms=None if newest is None else now_ms - newest,
    )


def _replace(lake: Lake, identifier: str, table: Table, chosen: Sequence[_Group], target_bytes: int) -> None:
    """Rewrite the ``chosen`` manifests and commit; raises ConflictError when main no longer lists them."""
    ids = SnapshotIds()
    snapshot_id = ids.of(table, MAIN_BRANCH)
    replaced: list[str] = []
    written: list[ManifestFile] = []
    for group in chosen:
        if group.is_merged:
            written += _merged(table, group, snapshot_id, target_bytes)
            replaced += [one.manifest_path for one in group.manifests]
            continue
        for manifest in group.manifests:
            if not is_live(manifest):
                replaced.append(manifest.manifest_path)
            elif copy := without(table.io, manifest, (), _location(table), snapshot_id):
                replaced.append(manifest.manifest_path)
                written.append(copy)
    change = BranchChange(replaced=replaced, written=written)
    commit = Commit(table, [(MAIN_BRANCH, change)], ids)

    def request(current: Table) -> CommitRequest:
        return commit.request(current, Manifests(current.io))

    if replaced:
        settle(lake, identifier, request)


def _merged(table: Table, group: _Group, snapshot_id: int, target_bytes: int) -> Iterator[ManifestFile]:
    """Write the live entries of a group to manifests of the target size, and yield these manifests."""
    entries = (
        entry
        for _, read in ahead(partial(checked_entries, table.io), group.manifests)
        for entry in read
        if entry.status != ManifestEntryStatus.DELETED
    )
    spec = table.specs()[group.manifests[0].partition_spec_id]
    for first in entries:
        with manifest_writer(table, spec, _location(table), snapshot_id) as writer:
            writer.existing(first)
            while writer.tell() < target_bytes and (entry := next(entries, None)):
                writer.existing(entry)
        yield writer.to_manifest_file()


def _location(table: Table) -> str:
    """Location of a new manifest."""
    return place(table, f"{uuid.uuid4()}-m0.avro")


def _positive(table: Table, identifier: str, name: str, default: int) -> int:
    text = table.properties.get(name, str(default))
    if not (text.isascii() and text.isdigit() and int(text)):
        raise RefusedError(f"table {identifier}: property {name} is {text!r}; allowed: a number above 0")
    return int(text)
