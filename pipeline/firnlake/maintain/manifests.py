"""Merges small manifests of data files, so that readers open few of them.

Main lists the same files before and after. Earlier snapshots keep the old manifests, which are deleted when those
snapshots expire. As long as a request to erase keys is open, manifests with entries of removed files are written anew
without them, those of delete files too, because the bounds in such an entry may be a key (C30).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from pyiceberg.manifest import ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.errors import ConflictError, RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import BranchChange
from firnlake.iceberg.commit import Commit, SnapshotIds, settle
from firnlake.iceberg.deleter import Finding, Kind
from firnlake.iceberg.manifests import Manifests, ahead, checked_entries, keeps_every_field, manifest_writer
from firnlake.lanes.erasure.requests import open_requests


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
    target_bytes = _positive(table, names.MANIFEST_TARGET_SIZE_BYTES, names.MANIFEST_TARGET_SIZE_BYTES_DEFAULT)
    least = _positive(table, names.MANIFEST_MIN_MERGE_COUNT, names.MANIFEST_MIN_MERGE_COUNT_DEFAULT)
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
        listing = [one for one in manifests if is_erasing and one.deleted_files_count]
        small = [one for one in manifests if content == ManifestContent.DATA and 2 * one.manifest_length < target_bytes]
        if len(small) < max(least, 2) or len(small := _whole(table, small)) < max(least, 2):
            small = []
        if listing := _whole(table, listing):
            yield (
                [one for one in manifests if one in listing or one in small],
                "rewritten without removed files, whose bounds may reveal keys to erase",
            )
        elif small:
            yield (
                small,
                f"merged: {len(small)} small manifests; {TableProperties.MANIFEST_MIN_MERGE_COUNT} is {least}",
            )


def _whole(table: Table, manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
    """Those of ``manifests`` of which nothing is lost when they are written again."""
    return [one for one, is_kept in ahead(partial(keeps_every_field, table), manifests) if is_kept]


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
    ids = SnapshotIds()
    snapshot_id = ids.of(table, MAIN_BRANCH)
    change = BranchChange(
        replaced=[one.manifest_path for group in groups for one in group],
        written=[one for group in groups for one in _merged(table, group, snapshot_id, target_bytes)],
        same_records=True,
    )
    commit = Commit(table, [(MAIN_BRANCH, change)], ids)
    settle(lake, ".".join(table.name()), lambda current: commit.request(current, Manifests(current.io)))


def _merged(
    table: Table, manifests: Sequence[ManifestFile], snapshot_id: int, target_bytes: int
) -> Iterator[ManifestFile]:
    """Write the live entries of ``manifests`` to new ones of the target size, and yield these."""
    entries = (
        entry
        for _, read in ahead(partial(checked_entries, table.io), manifests)
        for entry in read
        if entry.status != ManifestEntryStatus.DELETED
    )
    first = manifests[0]
    for entry in entries:
        with manifest_writer(table, first.partition_spec_id, snapshot_id, first.content) as writer:
            writer.existing(entry)
            while writer.tell() < target_bytes and (following := next(entries, None)):
                writer.existing(following)
        yield writer.to_manifest_file()


def _positive(table: Table, name: str, default: int) -> int:
    text = table.properties.get(name, str(default))
    if not (text.isascii() and text.isdigit() and int(text)):
        raise RefusedError(f"table {'.'.join(table.name())}: property {name} is {text!r}; allowed: a number above 0")
    return int(text)
