"""The judge's own figures of a topic partition: what the snapshot on which a plan was made says of it.

No plan tells them, and no module that plans or compacts computes them. What the judge shares with these is the decoder
of manifests, the parser of properties, and the memory that main names.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import pyarrow.compute as pc
from pyiceberg.exceptions import ValidationError
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from firnlake.errors import ConflictError
from firnlake.iceberg.branches import REMOVED_TOMBSTONES, ancestors, at_snapshot, on_branch
from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.iceberg.deletes import DeleteFile
from firnlake.iceberg.manifests import Manifests, manifests_of
from firnlake.job.plan import Plan
from firnlake.lanes.erasure.requests import Request, erasures_of
from firnlake.table.history import newest_clock
from firnlake.table.manifest_reader import read
from firnlake.table.policy import Policies, Policy
from firnlake.table.removed_tombstones import removed_tombstones
from firnlake.table.segment import TAIL, Segment
from firnlake.table.segments import Segments
from firnlake.table.topic_partition import TopicPartition

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
    _own: dict[TopicPartition, tuple[Segment, ...]] = field(default_factory=dict, repr=False)
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
        if owner not in self._own:
            self._own[owner] = self.segments.get(owner, ())
        return self._own[owner]

    def tombstones(self, owner: TopicPartition) -> tuple[Segment, ...]:
        """The segments of removed tombstones that counted then (C9)."""
        return self._tombstones.get(owner, ())

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
        aside = [one.path for one in self.tombstones(owner) if one.path not in but]
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
        own, beside = self.own(owner), self.tombstones(owner)
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

        Raises ConflictError if the plan's snapshot is no longer in main's history or does not hold the plan's inputs;
        UnavailableError as ``Plan.check_clock`` does.
        """
        plan.check_clock()
        key = plan.table_uuid, plan.snapshot_id
        if key not in self._known:
            manifests = self.manifests(target)
            self._known[key] = Basis.find(target, plan.table, target.properties, manifests, plan.snapshot_id)
        basis = self._known[key]
        own = {one.path for one in basis.own(plan.topic_partition)} if basis else set[str]()
        if basis is None or not own.issuperset(one.path for one in plan.inputs):
            raise ConflictError(
                f"plan {plan.id} ({plan.title}): snapshot {plan.snapshot_id}, on which it was made, is no longer in "
                "main's history, or does not hold its inputs; plan again"
            )
        return basis


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
