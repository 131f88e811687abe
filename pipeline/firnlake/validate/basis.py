"""What the judge takes from a table's history: the snapshot on which a plan was made, and the changes of a commit.

No plan tells the figures of a topic partition, and no module that plans or compacts computes them. What the judge
shares with these is the decoder of manifests, the parser of properties, and the memory that main names. Of the
statements in a commit's summary, the judge believes the plan's id, lane and place, its clock, and the snapshot on which
it was made. The figures are compared with what the files and that snapshot say.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any, Final, NamedTuple

import pyarrow.compute as pc
from pyiceberg.exceptions import ValidationError
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from firnlake.errors import ConflictError, RefusedError
from firnlake.iceberg.branches import (
    QUARANTINE,
    REMOVED_TOMBSTONES,
    SIDE_BRANCHES,
    ancestors,
    at_snapshot,
    firn_properties,
    on_branch,
)
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.iceberg.deletes import DeleteFile
from firnlake.iceberg.files import job_of
from firnlake.iceberg.manifests import Manifests, manifests_of
from firnlake.job.change import Change
from firnlake.job.plan import Plan
from firnlake.lanes import Lane
from firnlake.lanes.erasure.requests import Request, erasures_of
from firnlake.table.columns import ColumnRoles
from firnlake.table.history import JOB_ID, CommitSummary, newest_clock, plans_of
from firnlake.table.manifest_reader import read
from firnlake.table.policy import Policies, Policy
from firnlake.table.removed_tombstones import removed_tombstones
from firnlake.table.segment import TAIL, Segment, Segments, TopicPartition

_ENDS: Final = {b"\0\1": True, b"\0\0": False}
"""Control record types that end a transaction: true for committed, false for aborted."""


@dataclass(frozen=True)
class Basis:
    """``snapshot`` of main, on which plans were made. ``properties`` are the table's; None if they are unknown."""

    table: Table
    identifier: str
    snapshot: Snapshot
    properties: Mapping[str, str] | None
    manifests: Manifests = field(repr=False)
    _entries: dict[str, Mapping[str, list[ManifestEntry]]] = field(default_factory=dict, repr=False)

    @classmethod
    def find(
        cls,
        table: Table,
        identifier: str,
        properties: Mapping[str, str] | None,
        manifests: Manifests,
        snapshot_id: int | None,
    ) -> "Basis | None":
        """The snapshot with this id; None if it has expired, or if main's history in ``table`` has no such snapshot."""
        found = (one for one in ancestors(table) if one.snapshot_id == snapshot_id)
        return next((cls(table, identifier, one, properties, manifests) for one in found), None)

    @cached_property
    def at(self) -> Table:
        """The table as it was then; for reading only."""
        return at_snapshot(self.table, self.snapshot.snapshot_id)

    @cached_property
    def segments(self) -> Segments:
        """All segments, read from the manifests without a cache that other steps have filled."""
        return read(self.at, self.identifier)

    def own(self, owner: TopicPartition) -> tuple[Segment, ...]:
        """The segments of ``owner``, in offset order."""
        return self.segments.get(owner, ())

    def entries(self, branch: str = MAIN_BRANCH) -> Mapping[str, list[ManifestEntry]]:
        """The data files on ``branch``, by path; a file that is listed twice is there twice."""
        if branch not in self._entries:
            # The plans of a job share this reading, as they share the segments.
            table, listed = on_branch(self.at, branch), defaultdict(list)
            snapshot = table.current_snapshot()
            manifests = manifests_of(table, snapshot) if snapshot else []
            for entry in self.manifests.live(one for one in manifests if one.content == ManifestContent.DATA):
                listed[entry.data_file.file_path].append(entry)
            self._entries[branch] = listed
        return self._entries[branch]

    def files(self, paths: Collection[str], branch: str = MAIN_BRANCH) -> list[DataFile]:
        """The data files at ``paths`` on ``branch``, in their order."""
        return [one.data_file for path in paths for one in self.entries(branch).get(path, ())]

    def others(self, owner: TopicPartition, but: Collection[str]) -> list[DataFile]:
        """The data files of ``owner``, of main and of removed tombstones, except those at the paths ``but``."""
        on_main = dict.fromkeys(one.path for one in self.own(owner) if one.path not in but)
        aside = [one.path for one in self._tombstones.get(owner, ()) if one.path not in but]
        return [*self.files(on_main), *self.files(aside, REMOVED_TOMBSTONES)]

    @cached_property
    def deletes(self) -> tuple[DeleteFile, ...]:
        """The files of row-level deletes."""
        listed = (one for one in manifests_of(self.at, self.snapshot) if one.content == ManifestContent.DELETES)
        specs = self.table.specs()
        return tuple(
            DeleteFile.of(one.data_file, one.sequence_number or 0, specs) for one in self.manifests.live(listed)
        )

    def figures(self, plan: Plan) -> dict[str, Any]:
        """What follows from the lane, the clock and the inputs of ``plan``, by the field of the plan that tells it.

        This is what decides which records may be removed: the log end (C4), the lowest offset outside the inputs (C7),
        the removed tombstones that may be newer than an input (C9), transactions (C10), and row-level deletes (C27).
        """
        owner, traits = plan.topic_partition, plan.lane.traits
        own, beside = self.own(owner), self._tombstones.get(owner, ())
        known = {one.path: one for one in own}
        inputs = [known[one.path] for one in plan.inputs if one.path in known]
        taken = {one.path for one in inputs}
        outside = [one.base_offset for one in own if one.path not in taken and one.records]
        outside += [one.base_offset for one in self.segments.strays_of(owner)]
        end = max((one.last_offset for one in own), default=-1)
        # Row-level deletes may hide the log end from readers.
        seen_from = max((one.shown_from for one in own), default=-1)
        if traits.level_out == TAIL:
            head = [one.base_offset for one in inputs if one.level < TAIL]
            beside = tuple(one for one in beside if head and one.last_offset > min(head))
        else:
            chosen = {one.path for one in plan.removed_tombstones}
            beside = tuple(one for one in beside if one.path in chosen)
        return {
            "inputs": tuple(inputs),
            "removed_tombstones": beside,
            "clean_below": min(outside, default=None),
            "log_end_offset": end,
            "kept_from": None if seen_from == end else seen_from,
            "sequence_number": (
                self.segments.snapshot_number if traits.writes == "deletes" else self.segments.sequence_number
            ),
            "clock_behind_ms": max(0, (self._newest_clock_ms or plan.now_ms) - plan.now_ms),
            "transactional": traits.decides and any(one.control or one.transactional for one in inputs),
            "requests": tuple(one.id for one in self.requests(plan)),
        }

    def requests(self, plan: Plan) -> list[Request]:
        """The requests to erase keys that ``plan`` has to serve, the oldest first: those that it tells, and all of its
        topic that were made before the snapshot."""
        number = self.snapshot.sequence_number or 0
        asked = [one for one in self._requests if one.topic == plan.topic] if plan.lane.traits.serves_requests else []
        return [one for one in asked if one.id in plan.requests or one.sequence_number < number]

    def policy(self, topic: str) -> Policy | None:
        """The policy of ``topic``; None if the properties are unknown or refused."""
        policy = None if self._policies is None else self._policies.of(topic)
        return None if policy is None or policy.problem else policy

    def markers(self, plan: Plan) -> Iterator[tuple[int, int, bool]]:
        """The markers of transactions in files that are no inputs of ``plan``: producer, offset, committed (C10)."""
        taken = {one.path for one in plan.inputs}
        paths = [one.path for one in self.own(plan.topic_partition) if one.control and one.path not in taken]
        reader = DataFiles.of(self.table)
        for file in self.files(paths):
            for batch in reader.batches(Source.of(file), ["key", "offset", "is_control", "producer_id"]):
                for row in batch.filter(pc.fill_null(batch.column("is_control"), fill_value=False)).to_pylist():
                    if row["key"] and row["key"][2:4] in _ENDS:
                        yield row["producer_id"], row["offset"], _ENDS[row["key"][2:4]]

    @cached_property
    def _requests(self) -> tuple[Request, ...]:
        return tuple(erasure.request for erasure in erasures_of(self.table) if not erasure.problem)

    @cached_property
    def _policies(self) -> Policies | None:
        return None if self.properties is None else Policies.parse(self.identifier, self.properties)

    @cached_property
    def _newest_clock_ms(self) -> int | None:
        return newest_clock(self.at)

    @cached_property
    def _tombstones(self) -> Mapping[TopicPartition, tuple[Segment, ...]]:
        """The segments of removed tombstones that counted then (C9)."""
        return removed_tombstones(self.at, self.identifier)


@dataclass(frozen=True)
class Bases:
    """The bases of plans that are about to change their tables, each read once."""

    _known: dict[tuple[str, int], Basis | None] = field(default_factory=dict)
    _manifests: dict[str, Manifests] = field(default_factory=dict)

    def manifests(self, target: Table) -> Manifests:
        """The manifests of ``target``."""
        return self._manifests.setdefault(str(target.metadata.table_uuid), Manifests(target.io))

    def of(self, target: Table, plan: Plan) -> Basis:
        """The basis of ``plan`` in ``target``, its table.

        Raises ConflictError if the plan's snapshot is no longer in main's history; UnavailableError as
        ``Plan.check_clock`` does.
        """
        plan.check_clock()
        key = str(target.metadata.table_uuid), plan.snapshot_id
        if key not in self._known:
            manifests = self.manifests(target)
            self._known[key] = Basis.find(target, plan.table, target.properties, manifests, plan.snapshot_id)
        if basis := self._known[key]:
            return basis
        raise ConflictError(
            f"plan {plan.id} ({plan.title}): snapshot {plan.snapshot_id}, on which it was made, is no longer in main's "
            "history; plan again"
        )


def properties_after(table: Table, snapshot: Snapshot) -> Mapping[str, str] | None:
    """The properties in the metadata file that the commit of ``snapshot`` wrote; None if that file is gone."""
    log = table.metadata.metadata_log
    since = [one for one in log if one.timestamp_ms >= snapshot.timestamp_ms]
    if len(since) == len(log) and log:
        return None
    for entry in since:
        try:
            metadata = FromInputFile.table_metadata(table.io.new_input(entry.metadata_file))
        except (OSError, ValueError, ValidationError):
            return None
        if metadata.snapshot_by_id(snapshot.snapshot_id) is not None:
            return metadata.properties
    return table.metadata.properties


@dataclass(frozen=True)
class Committed:
    """The commit that made ``snapshot`` on main, on its parent ``before``."""

    table: Table
    identifier: str
    snapshot: Snapshot
    before: Snapshot

    @classmethod
    def find(cls, lake: Lake, identifier: str, snapshot_id: int | None) -> "Committed":
        """The commit that made snapshot ``snapshot_id``, by default Firn's newest commit of a plan.

        Raises RefusedError if there is no such commit, if it carried out no plan, or if its parent has expired.
        """
        table = lake.table(identifier)
        named = None if snapshot_id is None else table.snapshot_by_id(snapshot_id)
        line = ancestors(table) if snapshot_id is None else [named] if named else []
        snapshot = next((one for one in line if plans_of(table, one)), None)
        if snapshot is None:
            what = "no snapshot is" if snapshot_id is None else f"snapshot {snapshot_id} is gone, or is not"
            raise RefusedError(
                f"table {identifier}: {what} the result of a plan; allowed: a commit by one of the lanes "
                f"{', '.join(Lane)}"
            )
        before = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id is not None else None
        if before is None:
            raise RefusedError(
                f"table {identifier}: the snapshot before {snapshot.snapshot_id} has expired; allowed: a commit whose "
                "parent snapshot is kept"
            )
        return cls(table, identifier, snapshot, before)

    @property
    def bytes(self) -> int:
        """File bytes that its plans have read: none if they have only dropped files."""
        counts = self._summary.counts
        drops = Lane(self._summary.lane).traits.writes == "nothing"
        return 0 if drops else counts.bytes_in + counts.bytes_in_place

    def changes(self) -> Iterator[tuple[Change, Basis]]:
        """The change of each plan, and the basis of the plan.

        Raises RefusedError when a snapshot that this needs has expired.
        """
        properties, at = properties_after(self.table, self.snapshot), at_snapshot(self.table, self.snapshot.snapshot_id)
        find = cache(partial(Basis.find, at, self.identifier, properties, self._manifests))
        for plan in plans_of(self.table, self.snapshot):
            if properties is None and Lane(plan.lane).traits.writes == "nothing":
                raise RefusedError(
                    f"table {self.identifier}: the metadata file of snapshot {self.snapshot.snapshot_id}, which holds "
                    "the retention of its topics, is gone; allowed: a commit whose metadata file is kept"
                )
            basis = find(plan.planned_on)
            if basis is None:
                raise RefusedError(
                    f"table {self.identifier}: plan {plan.job_id} of snapshot {self.snapshot.snapshot_id} was made on "
                    f"snapshot {plan.planned_on}, which has expired; allowed: a commit whose plans were made on a "
                    "snapshot that is kept"
                )
            yield self._change(plan, basis), basis

    def _change(self, published: CommitSummary, basis: Basis) -> Change:
        lane, owner = Lane(published.lane), published.topic_partition
        assert owner  # as ``plans_of`` says
        traits, own, gone = lane.traits, basis.own(owner), self._main.gone
        before = {one.path: one for one in self._parent.get(owner, ())}
        # A file that the commit removes although its plan did not know it is an input that is told wrong.
        known = before | {one.path: one for one in own}
        if traits.writes == "deletes":
            stay = [one.path for one in own if one.records and one.equality_deletes]
        elif traits.serves_requests:
            stay = [one.path for one in own if one.path not in gone]
        else:
            tail = [one.path for one in own if one.level == TAIL == traits.level_out]
            stay = [path for path in tail if path in before and path not in gone]
        inputs = dict.fromkeys((*(path for path in known if path in gone), *stay))
        replaced = self._replaced_tombstones.get(owner, ()) if traits.serves_requests else ()
        plan = Plan.model_construct(
            {"inputs", "removed_tombstones"} if traits.serves_requests else {"inputs"},
            id=published.job_id,
            table=self.identifier,
            snapshot_id=published.planned_on,
            lane=lane,
            topic=owner.topic,
            partition=owner.partition,
            now_ms=published.now_ms,
            reason=published.reason,
            inputs=tuple(known[path] for path in inputs),
            removed_tombstones=tuple(replaced),
            requests=tuple(published.requests.split()),
        )
        converts = traits.writes == "deletes"
        return Change(
            plan=plan,
            counts=published.counts,
            in_place=frozenset(stay),
            merged=tuple(self._row_deletes.gone) if converts else (),
            kept=self._of(owner, self._main.added),
            quarantined=self._of(owner, self._beside[QUARANTINE]),
            removed_tombstones=self._of(owner, self._beside[REMOVED_TOMBSTONES]),
            deletes=self._own(self._row_deletes.added) if converts else (),
        )

    def _moved(self, content: ManifestContent, before: Snapshot | None, after: Snapshot | None) -> "_Moved":
        """The files of this ``content`` that went and came between two snapshots of one branch."""
        old, new = (
            frozenset(one for one in (at.manifests(self.table.io) if at else ()) if one.content == content)
            for at in (before, after)
        )
        went, came = (
            [entry.data_file for entry in self._manifests.live(sorted(listed, key=lambda one: one.manifest_path))]
            for listed in (old - new, new - old)
        )
        old_paths, new_paths = ({one.file_path for one in files} for files in (went, came))
        return _Moved(old_paths - new_paths, [one for one in came if one.file_path not in old_paths])

    @cached_property
    def _main(self) -> "_Moved":
        return self._moved(ManifestContent.DATA, self.before, self.snapshot)

    @cached_property
    def _row_deletes(self) -> "_Moved":
        return self._moved(ManifestContent.DELETES, self.before, self.snapshot)

    @cached_property
    def _replaced_tombstones(self) -> Mapping[TopicPartition, Sequence[Segment]]:
        """The segments of removed tombstones that the commit has replaced."""
        after = self._on_branch(REMOVED_TOMBSTONES)
        if after is None or after.parent_snapshot_id is None:
            return {}
        before = self.table.snapshot_by_id(after.parent_snapshot_id)
        if before is None:
            raise RefusedError(
                f"table {self.identifier}: the snapshot before {after.snapshot_id} on branch {REMOVED_TOMBSTONES} has "
                "expired; allowed: a commit whose parent snapshot on that branch is kept, too"
            )
        gone = self._moved(ManifestContent.DATA, before, after).gone
        held = read(at_snapshot(self.table, before.snapshot_id), self.identifier)
        return {owner: [one for one in segments if one.path in gone] for owner, segments in held.items()}

    @cached_property
    def _beside(self) -> Mapping[str, Sequence[DataFile]]:
        """The data files that the commit has added to each side branch."""
        listed = {one: self._moved(ManifestContent.DATA, None, self._on_branch(one)).added for one in SIDE_BRANCHES}
        return {branch: self._own(files) for branch, files in listed.items()}

    def _own(self, files: Iterable[DataFile]) -> tuple[DataFile, ...]:
        """Those of ``files`` that the job of the commit has written."""
        return tuple(one for one in files if job_of(one.file_path) == self._summary.job_id)

    def _of(self, owner: TopicPartition, files: Iterable[DataFile]) -> tuple[DataFile, ...]:
        return tuple(one for one in files if self._columns.owner(self.table, one) == owner)

    def _on_branch(self, branch: str) -> Snapshot | None:
        """The snapshot of ``branch`` that the commit has made; None if there is none."""
        line = ancestors(on_branch(at_snapshot(self.table, self.snapshot.snapshot_id), branch))
        return next((one for one in line if firn_properties(one).get(JOB_ID) == self._summary.job_id), None)

    @cached_property
    def _summary(self) -> CommitSummary:
        told = CommitSummary.of(self.snapshot)
        assert told  # ``find`` has read its plans
        return told

    @cached_property
    def _manifests(self) -> Manifests:
        return Manifests(self.table.io)

    @cached_property
    def _parent(self) -> Segments:
        """The segments before the commit."""
        return read(at_snapshot(self.table, self.before.snapshot_id), self.identifier)

    @cached_property
    def _columns(self) -> ColumnRoles:
        return ColumnRoles.of(self.table, self.identifier)


class _Moved(NamedTuple):
    """The paths of files that went, and the files that came."""

    gone: Collection[str]
    added: Sequence[DataFile]
