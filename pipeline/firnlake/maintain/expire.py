"""Expire snapshots, branches and tags by Iceberg's own rules, and delete the files that only they reached.

The rules are in the Iceberg spec, "Snapshot Retention Policy". Before a commit removes snapshots from the metadata,
Firn lists the files that lose their last reference, in a document below its own folder. Afterwards it loads the table
again, and deletes those of the files that nothing reaches any more. If it is interrupted, the next run goes on.

Before snapshots go that tell the progress of sinks, empty snapshots tell it again (`iceberg.branches`), in the same
commit. A commit can't require that there is no other ref (Iceberg REST catalog specification, ``TableRequirement``),
and catalogs remove the refs of a snapshot together with it. So a branch or tag that another process creates meanwhile
on an expiring snapshot goes with the snapshot.
"""

import os
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Final

from pyarrow.fs import FileSystem, FileType, LocalFileSystem
from pydantic import TypeAdapter, ValidationError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePartitionStatisticsUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    TableRequirement,
    TableUpdate,
)

from firnlake.iceberg.branches import (
    BRANCH,
    FIRN_BRANCHES,
    MAX_SNAPSHOT_AGE,
    ancestors,
    cut_off,
    firn_properties,
    line_of,
    max_snapshot_age,
    memory_in,
    memory_named,
    older_tombstones,
)
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import BranchChange, Commit, CommitRequest, SnapshotIds, is_live
from firnlake.iceberg.commit import settle
from firnlake.iceberg.files import (
    DATA_PATH,
    EXPIRED_FOLDER,
    METADATA_PATH,
    Finding,
    Garbage,
    Kind,
    Stored,
    delete_file,
    files_in,
    metadata_folder,
    store,
    whole_number,
    write_whole,
)
from firnlake.job.garbage import OF_AGE, unless_reached
from firnlake.job.stage import planned_on
from firnlake.lanes.erasure.certificate import history_ends
from firnlake.table.history import document_of
from firnlake.table.policy import Policies
from firnlake.table.reached import Contents, Reached, UnknownReferencesError, statistics_of, whole_table
from firnlake.table.removed_tombstones import drop_void_tombstones
from firnlake_expectations.wording import count

AT_ONCE: Final = 1000
"""Number of snapshots that one commit removes: PyIceberg's catalogs take seconds for 10,000, and refuse the removal if
another writer commits meanwhile."""
_REASON: Final = "only expired snapshots referred to it"
MIN_SNAPSHOTS: Final = "history.expire.min-snapshots-to-keep"
MAX_REF_AGE: Final = "history.expire.max-ref-age-ms"
_LIMITS: Final = {MAX_SNAPSHOT_AGE: max_snapshot_age({}), MIN_SNAPSHOTS: 1, MAX_REF_AGE: 2**63 - 1}
"""Iceberg's defaults."""


@dataclass(frozen=True)
class SnapshotRetention:
    """The snapshots that a table keeps, and the snapshots, branches and tags that expire, with reasons."""

    snapshots: frozenset[int]
    """Ids of the snapshots that the table keeps."""
    expired_snapshots: Mapping[int, str]
    """Reasons by id of the expired snapshot, in the order of the metadata (oldest first)."""
    expired_refs: Mapping[str, str]
    """Reasons by name of the expired branch or tag."""


def retained(
    identifier: str,
    metadata: TableMetadata,
    now_ms: int,
    erased_below: int = 0,
    needed: Collection[int] = (),
) -> SnapshotRetention:
    """The retention of table ``identifier`` with this ``metadata`` at ``now_ms`` (epoch milliseconds).

    On main and Firn's branches, snapshots with a sequence number below ``erased_below`` expire whatever their age,
    because they may hold erased keys. The newest snapshot of a branch, snapshots that a tag or another branch keeps,
    those with an id in ``needed``, and the memory of kept snapshots (``iceberg.branches``) do not expire.

    Raises RefusedError for a limit that is not a whole number.
    """
    limits = {
        name: whole_number(identifier, metadata.properties, name, default, int(name == MIN_SNAPSHOTS))
        for name, default in _LIMITS.items()
    }
    snapshots = {one.snapshot_id: one for one in metadata.snapshots}
    expired_refs = {
        name: reason
        for name, ref in metadata.refs.items()
        if name != MAIN_BRANCH
        and (reason := _ref_expires(ref, snapshots.get(ref.snapshot_id), now_ms, limits[MAX_REF_AGE]))
    }
    kept: set[int] = set()
    reached: dict[int, str] = {}
    for name, ref in metadata.refs.items():
        if name in expired_refs:
            continue
        kept.add(ref.snapshot_id)
        if ref.snapshot_ref_type is SnapshotRefType.TAG:
            reached.setdefault(ref.snapshot_id, "")
            continue
        max_age = limits[MAX_SNAPSHOT_AGE] if ref.max_snapshot_age_ms is None else ref.max_snapshot_age_ms
        least = limits[MIN_SNAPSHOTS] if ref.min_snapshots_to_keep is None else ref.min_snapshots_to_keep
        reason = f"on branch {name}, older than {MAX_SNAPSHOT_AGE} = {max_age}, not among the newest {least}"
        erasing = f"on branch {name}, from before keys were erased (firn.erase.history = expire)"
        has_erased = name in (MAIN_BRANCH, *FIRN_BRANCHES)
        staying = True
        for place, snapshot in enumerate(line_of(metadata, ref.snapshot_id)):
            is_erased = has_erased and place > 0 and (snapshot.sequence_number or 0) < erased_below
            staying = staying and (place < least or now_ms - snapshot.timestamp_ms <= max_age)
            reached.setdefault(snapshot.snapshot_id, erasing if staying and is_erased else reason)
            if staying and not is_erased:
                kept.add(snapshot.snapshot_id)
    young = (one for one in metadata.snapshots if now_ms - one.timestamp_ms <= limits[MAX_SNAPSHOT_AGE])
    kept.update(one.snapshot_id for one in young if one.snapshot_id not in reached)
    others = {*needed, *_memory_of(metadata, {*kept, *needed})}
    beside = (snapshots[one] for one in others if one in snapshots)
    kept.update(one.snapshot_id for one in beside if (one.sequence_number or 0) >= erased_below)
    alone = f"no branch or tag reaches it, older than {MAX_SNAPSHOT_AGE} = {limits[MAX_SNAPSHOT_AGE]}"
    expired = {one: reached.get(one, alone) for one in snapshots if one not in kept}
    return SnapshotRetention(frozenset(snapshots.keys() - expired.keys()), expired, expired_refs)


def _memory_of(metadata: TableMetadata, kept: Collection[int]) -> set[int]:
    """Ids of the snapshots of removed tombstones that belong to the histories of the ``kept`` snapshots."""
    memory: dict[int | None, int] = {}
    own = (one for one in metadata.snapshots if BRANCH not in firn_properties(one))
    # Parents come first, because their numbers are lower.
    for snapshot in sorted(own, key=lambda one: one.sequence_number or 0):
        named = memory_in(snapshot)
        if named is None and snapshot.parent_snapshot_id in memory:
            named = memory[snapshot.parent_snapshot_id]
        elif named is None:
            older = older_tombstones(metadata, snapshot)
            named = older.snapshot_id if older else 0
        memory[snapshot.snapshot_id] = named
    return {memory[one] for one in kept if memory.get(one)}


def _ref_expires(ref: SnapshotRef, snapshot: Snapshot | None, now_ms: int, default_ms: int) -> str | None:
    """The reason why ``ref``, which points at ``snapshot``, expires; None when it does not expire."""
    if snapshot is None:
        return f"its snapshot {ref.snapshot_id} is not in the table's metadata"
    max_age = default_ms if ref.max_ref_age_ms is None else ref.max_ref_age_ms
    if now_ms - snapshot.timestamp_ms <= max_age:
        return None
    return f"its snapshot is older than {MAX_REF_AGE} = {max_age}"


_FILES: Final = TypeAdapter(dict[str, int])
"""Content of a document: locations and sizes in bytes of the files that an expiry leaves without a reference."""


def _own(table: Table, files: Iterable[tuple[str, int]]) -> Iterator[Stored]:
    """Those of ``files``, locations with sizes, that lie in the folders of ``table``: its location, and where its
    properties put data and metadata. What `add_files` took in from elsewhere is not the table's, and neither is what
    lies behind a symbolic link."""
    resolved = cache(partial(_resolved, table))
    named = (table.properties[name] for name in (DATA_PATH, METADATA_PATH) if name in table.properties)
    roots = [resolved(one.rstrip("/")) for one in (table.location(), *named)]
    for location, size in files:
        access, folder = resolved(location.rpartition("/")[0])
        if any(access == own and folder.startswith(root) for own, root in roots):
            yield Stored(*store(table, location), size, None)


def _resolved(table: Table, folder: str) -> tuple[FileSystem, str]:
    access, path = store(table, folder)
    return access, f"{(os.path.realpath if isinstance(access, LocalFileSystem) else os.path.normpath)(path)}/"


@dataclass
class Expiry:
    """What expires in table ``identifier`` at ``now_ms`` (epoch milliseconds), and what earlier expiries have left."""

    lake: Lake
    identifier: str
    now_ms: int
    contents: Contents
    table: Table
    """The table as it was when it was looked at."""
    retention: SnapshotRetention
    leaving: frozenset[int]
    """Ids of the snapshots that expire, and of those that are gone but still have statistics."""
    listed: dict[str, dict[str, int]] = field(default_factory=dict)
    """The files that this expiry and earlier ones have left without a reference, by the location of their document."""
    written: str = ""
    """Location of the document of this expiry."""
    garbage: Sequence[Garbage] = ()
    missing: dict[str, str] = field(default_factory=dict)
    """The manifests and manifest lists that are gone or damaged, with the reason."""

    @classmethod
    def find(cls, lake: Lake, identifier: str, now_ms: int, contents: Contents) -> "Expiry":
        """Look at the table; changes nothing. Raises RefusedError for a limit that is not a number."""
        table = whole_table(lake, identifier)
        retention = _retention(lake, table, identifier, now_ms)
        attached = {one.snapshot_id for one in statistics_of(table.metadata)}
        leaving = frozenset(retention.expired_snapshots) | (attached - retention.snapshots)
        return cls(lake, identifier, now_ms, contents, table, retention, leaving)

    def look(self, reached: Reached) -> None:
        """Find the files to delete: those that nothing but the ``leaving`` snapshots has ``reached``, now or when an
        earlier expiry listed them."""
        folder = f"{metadata_folder(self.table)}/{EXPIRED_FOLDER}"
        for file in files_in(*store(self.table, folder)):
            location = f"{folder}/{file.path.rpartition('/')[2]}"
            with suppress(FileNotFoundError, ValidationError), self.table.io.new_input(location).open() as stream:
                self.listed[location] = _FILES.validate_json(stream.read())
        if self.leaving:
            self.written = f"{folder}/{uuid.uuid4().hex}.json"
            self.listed[self.written] = self._unreferenced(reached)
        going = {location: size for files in self.listed.values() for location, size in reached.expired(files).items()}
        own = list(_own(self.table, going.items()))
        if self.listed.keys() - {self.written}:
            # Some of what an earlier expiry listed may have been deleted.
            own = [one for one in own if one.access.get_file_info(one.path).type != FileType.NotFound]
        if own:
            self.garbage = [Garbage(Kind.EXPIRED, self.identifier, _REASON, own)]

    def _unreferenced(self, reached: Reached) -> dict[str, int]:
        """The files that nothing but the ``leaving`` snapshots has ``reached``.

        Adds the locations of manifests and manifest lists that are gone or damaged to ``missing``; these stay.
        """
        snapshots = [one for one in self.table.metadata.snapshots if one.snapshot_id in self.leaving]
        manifests = reached.expired(self.contents.manifests_of(snapshots, self.missing))
        files: dict[str, int] = {}
        for _, data in self.contents.files_in(manifests, self.missing):
            files |= reached.expired(data)
        named = {
            **{location: 0 for one in snapshots if (location := document_of(one))},
            **{one.manifest_list: self.contents.list_bytes(one) for one in snapshots},
            **{
                one.statistics_path: one.file_size_in_bytes
                for one in statistics_of(self.table.metadata)
                if one.snapshot_id in self.leaving
            },
        }
        files |= manifests | reached.expired(named)
        return {location: size for location, size in files.items() if location not in self.missing}

    def findings(self) -> list[Finding]:
        """The findings about it, before anything is changed."""
        history = self._history(self.retention.expired_snapshots, self.retention.expired_refs)
        return [*history, *self._lost(), *(one.finding() for one in self.garbage)]

    def delete(self) -> list[Finding]:
        """Remove it from the metadata, then delete the files; returns the findings. Raises the errors of ``settle``."""
        if not (self.leaving or self.retention.expired_refs or self.listed):
            return []
        if self.leaving:
            write_whole(self.table, self.written, _FILES.dump_json(self.listed[self.written]))
        if self.leaving or self.retention.expired_refs:
            # What makes removed tombstones void is about to expire.
            drop_void_tombstones(self.lake, self.identifier)
            self._commit()
        try:
            reached = Reached.look(self.lake, self.identifier, self.contents)
        except UnknownReferencesError as error:
            return [Finding.of_error(Kind.EXPIRED, self.identifier, error)]
        now = reached.table.metadata
        ids = {one.snapshot_id for one in now.snapshots}
        found = self._history(
            [one for one in self.retention.expired_snapshots if one not in ids],
            [name for name in self.retention.expired_refs if name not in now.refs],
        )
        deleted = unless_reached(self.garbage, reached)
        has_failed = any(one.exit_code for one in deleted)
        for location, files in self.listed.items():
            # Another process may be about to remove the rest; this one has removed what it could.
            is_over = location == self.written or len(reached.expired(files)) == len(files)
            if is_over and not reached.others and not has_failed:
                delete_file(Stored(*store(self.table, location), 0, None))
        return [*found, *self._lost(), *deleted]

    def _commit(self) -> None:
        """Commit until nothing of it is left in the metadata. Raises the errors of ``settle``."""
        for _ in range(1 + len(self.retention.expired_snapshots) // AT_ONCE):
            request = partial(self._request, {})
            settle(self.lake, self.identifier, request, partial(whole_table, self.lake, self.identifier))

    def _request(self, new: SnapshotIds, table: Table) -> CommitRequest | None:
        """A request to remove what was found and may still go; ``new`` are the ids of snapshots that it adds."""
        retention = _retention(self.lake, table, self.identifier, self.now_ms)
        refs = [name for name in retention.expired_refs if name in self.retention.expired_refs]
        ids = [one for one in retention.expired_snapshots if one in self.leaving][:AT_ONCE]
        staying = {one.snapshot_id for one in table.metadata.snapshots}.difference(ids)
        updates: list[TableUpdate] = [RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in refs]
        # Not every catalog removes the statistics of a snapshot together with it.
        for kind, statistics in (
            (RemoveStatisticsUpdate, table.metadata.statistics),
            (RemovePartitionStatisticsUpdate, table.metadata.partition_statistics),
        ):
            attached = self.leaving.intersection(one.snapshot_id for one in statistics)
            updates += (kind.model_validate({"snapshot-id": one}) for one in sorted(attached - staying))
        if ids:
            updates.append(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": ids}))
        if not updates:
            return None
        request = self._told_again(table, frozenset(ids), refs, new)
        # Without a requirement for each ref, a ref that moves to a snapshot while that is removed would be lost.
        requirements: list[TableRequirement] = [AssertTableUUID(uuid=table.metadata.table_uuid)]
        for name, ref in table.metadata.refs.items():
            requirements.append(AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": ref.snapshot_id}))
        return replace(request, requirements=tuple(requirements), updates=(*request.updates, *updates))

    def _told_again(
        self, table: Table, expired: Collection[int], refs: Collection[str], ids: SnapshotIds
    ) -> CommitRequest:
        """The part of a request that tells the progress of sinks again, as ``expired`` snapshots told it."""
        changes: list[tuple[str, BranchChange]] = []
        for name, ref in table.metadata.refs.items():
            if ref.snapshot_ref_type is SnapshotRefType.TAG or name in (*FIRN_BRANCHES, *refs):
                continue
            summaries = cut_off(list(ancestors(table, name)), expired, self.now_ms)
            changes += ((name, BranchChange(summary=summary)) for summary in summaries)
        memory = table.snapshot_by_id(memory_named(table) or 0)
        is_named = any(memory_in(one) is not None for one in ancestors(table) if one.snapshot_id not in expired)
        if not changes and memory and not is_named and any(map(is_live, memory.manifests(table.io))):
            # Main would no longer tell which memory belongs to its history.
            changes.append((MAIN_BRANCH, BranchChange()))
        if not changes:
            return CommitRequest((), ())
        return Commit(table, changes, ids).request(table)

    def _history(self, snapshots: Collection[int], refs: Collection[str]) -> list[Finding]:
        """Findings about the refs and snapshots that go; one for each reason, as old as its youngest snapshot."""
        found, times = [], {one.snapshot_id: one.timestamp_ms for one in self.table.metadata.snapshots}
        for name in refs:
            ref, reason = self.table.metadata.refs[name], self.retention.expired_refs[name]
            taken_ms = times.get(ref.snapshot_id)
            age_ms = None if taken_ms is None else self.now_ms - taken_ms
            title = f"{ref.snapshot_ref_type.value} {name}"
            found.append(Finding(Kind.REF, title, goes=True, reason=reason, files=0, age_ms=age_ms))
        by_reason: dict[str, list[int]] = defaultdict(list)
        for one in snapshots:
            by_reason[self.retention.expired_snapshots[one]].append(times[one])
        for reason, own in by_reason.items():
            name, age_ms = f"{self.identifier}: {count(len(own), 'snapshot')}", self.now_ms - max(own)
            found.append(Finding(Kind.SNAPSHOTS, name, goes=True, reason=reason, files=0, age_ms=age_ms))
        return found

    def _lost(self) -> list[Finding]:
        stay = f"those files stay, unless orphans in firn.maintenance deletes them, once {OF_AGE}"
        told = ((one, f"{why}, so nobody can tell which files it names; {stay}") for one, why in self.missing.items())
        return [Finding(Kind.EXPIRED, one, goes=False, reason=reason, files=0) for one, reason in told]


def _retention(lake: Lake, table: Table, identifier: str, now_ms: int) -> SnapshotRetention:
    """What the table keeps, with the snapshots by which the judge holds open jobs to what they have planned, no older
    than such jobs may be."""
    young_ms = now_ms - Policies.parse(identifier, table.properties).default.job_max_age_ms
    young = {one.snapshot_id for one in table.metadata.snapshots if one.timestamp_ms >= young_ms}
    erased_below = history_ends(lake, table, identifier, now_ms)
    # The snapshot that tells main's memory may expire.
    needed = {*(young & planned_on(lake, identifier)), memory_named(table) or 0}
    return retained(identifier, table.metadata, now_ms, erased_below, needed)
