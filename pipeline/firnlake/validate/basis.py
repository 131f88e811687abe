"""The judge's own figures of a topic partition: what the snapshot on which a plan was made says of it.

No plan tells them, and no module that plans or compacts computes them. What the judge shares with these is the decoder
of manifests, the parser of properties, and the memory that main names.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import pyarrow.compute as pc
from pyiceberg.exceptions import ValidationError
from pyiceberg.manifest import DataFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from firnlake.errors import ConflictError
from firnlake.iceberg.branches import REMOVED_TOMBSTONES, ancestors, at_snapshot, on_branch
from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.job.plan import Plan
from firnlake.lanes import Lane
from firnlake.lanes.erasure.requests import Request, erasures_of
from firnlake.table.columns import ColumnRoles
from firnlake.table.history import newest_clock
from firnlake.table.live_files import read_entries
from firnlake.table.manifest_reader import read
from firnlake.table.policy import Policies
from firnlake.table.removed_tombstones import removed_tombstones
from firnlake.table.segment import TAIL, Segment
from firnlake.table.segments import Segments
from firnlake.table.topic_partition import TopicPartition
from firnlake.validate.deletes import SnapshotDeletes

_ENDS: Final = {b"\0\1": True, b"\0\0": False}
"""Control record types that end a transaction: true for committed, false for aborted."""


@dataclass(frozen=True)
class Basis:
    """``snapshot`` of main, on which plans were made. ``properties`` are the table's; None if they are unknown."""

    table: Table
    identifier: str
    snapshot: Snapshot
    properties: Mapping[str, str] | None
    _own: dict[TopicPartition, tuple[Segment, ...]] = field(default_factory=dict, repr=False)
    _listed: dict[str, dict[str, list[DataFile]]] = field(default_factory=dict, repr=False)

    @classmethod
    def find(
        cls, table: Table, identifier: str, snapshot_id: int | None, properties: Mapping[str, str] | None
    ) -> "Basis | None":
        """The snapshot with this id; None if it has expired, or if main's history in ``table`` has no such snapshot."""
        found = (one for one in ancestors(table) if one.snapshot_id == snapshot_id)
        return next((cls(table, identifier, one, properties) for one in found), None)

    @cached_property
    def at(self) -> Table:
        """The table as it was then; for reading only."""
        return at_snapshot(self.table, self.snapshot.snapshot_id)

    @property
    def number(self) -> int:
        """The sequence number of the snapshot."""
        return self.snapshot.sequence_number or 0

    @cached_property
    def columns(self) -> ColumnRoles:
        """The roles of the table's columns."""
        return ColumnRoles.of(self.table, self.identifier)

    @cached_property
    def segments(self) -> Segments:
        """All segments, read from the manifests without a cache that other steps have filled."""
        return read(self.at, self.identifier)

    @cached_property
    def deletes(self) -> SnapshotDeletes:
        """The row-level deletes."""
        return SnapshotDeletes.of(self.table, self.snapshot, (one.path for one in self.segments.each()))

    def requests(self, topic: str, told: Collection[str]) -> tuple[Request, ...]:
        """The requests to erase keys of ``topic`` that a plan serves, the oldest first.

        These are the requests that it has ``told``, by their ids, and all that were made before the snapshot.
        """
        asked = (one for one in self._requests if one.topic == topic)
        return tuple(one for one in asked if one.id in told or one.sequence_number < self.number)

    @cached_property
    def _requests(self) -> tuple[Request, ...]:
        return tuple(erasure.request for erasure in erasures_of(self.table) if not erasure.problem)

    def own(self, owner: TopicPartition) -> tuple[Segment, ...]:
        """The segments of ``owner``, in offset order."""
        if owner not in self._own:
            self._own[owner] = self.segments.get(owner, ())
        return self._own[owner]

    def others(self, owner: TopicPartition, but: Collection[str]) -> list[DataFile]:
        """The data files of ``owner``, of main and of removed tombstones, except those at the paths ``but``."""
        on_main = dict.fromkeys(one.path for one in self.own(owner) if one.path not in but)
        aside = [one.path for one in self.tombstones(owner) if one.path not in but]
        return [*self.files(on_main), *self.files(aside, REMOVED_TOMBSTONES)]

    def files(self, paths: Collection[str], branch: str = MAIN_BRANCH) -> list[DataFile]:
        """The data files at ``paths`` on ``branch``, in their order; a file that is listed twice is there twice."""
        if not paths:
            return []
        if branch not in self._listed:
            # The plans of a job share this reading, as they share the segments.
            self._listed[branch] = defaultdict(list)
            for entry, _ in read_entries(on_branch(self.at, branch)):
                self._listed[branch][entry.data_file.file_path].append(entry.data_file)
        return [file for path in paths for file in self._listed[branch].get(path, ())]

    def log_end(self, owner: TopicPartition) -> int:
        """The highest upper bound of the offset (C4); -1 if the topic partition has no record."""
        return max((one.last_offset for one in self.own(owner)), default=-1)

    def kept_from(self, owner: TopicPartition) -> int:
        """The first offset that might be the highest that readers see (C4, C27)."""
        return max((one.shown_from for one in self.own(owner)), default=-1)

    def clean_below(self, owner: TopicPartition, taken: Collection[str]) -> int | None:
        """The lowest lower bound of the offset in files other than ``taken`` (C7); None if no such file has records."""
        outside = [one.base_offset for one in self.own(owner) if one.path not in taken and one.records]
        strays = (one.base_offset for one in self.segments.strays_of(owner))
        return min((*outside, *strays), default=None)

    def tombstones(self, owner: TopicPartition) -> tuple[Segment, ...]:
        """The segments of removed tombstones that counted then (C9)."""
        return self._tombstones.get(owner, ())

    def returning(self, owner: TopicPartition, taken: Collection[str]) -> list[str]:
        """Paths of the removed tombstones that may be newer than a record of the head among ``taken`` (C9)."""
        head = [one.base_offset for one in self.own(owner) if one.path in taken and one.level < TAIL]
        return [one.path for one in self.tombstones(owner) if head and one.last_offset > min(head)]

    def data_sequence_number(self, lane: Lane) -> int | None:
        """The number that what ``lane`` writes must have (C27); None for the number of its own commit."""
        return self.segments.snapshot_number if lane.traits.writes == "deletes" else self.segments.sequence_number

    def retention_ms(self, topic: str) -> int | None:
        """The topic's delete.retention.ms (C8); None if the properties are unknown or refused."""
        policy = None if self._policies is None else self._policies.of(topic)
        return None if policy is None or policy.problem else policy.delete_retention_ms

    def behind_ms(self, now_ms: int) -> int:
        """Milliseconds by which ``now_ms`` is behind the newest clock on main's line (C8)."""
        return max(0, (self._newest_clock_ms or now_ms) - now_ms)

    def transactional(self, owner: TopicPartition, taken: Collection[str], lane: Lane) -> bool:
        """True if ``lane`` has to look at transactions of records in ``taken`` (C10)."""
        if not lane.traits.decides:
            return False
        own = [one for one in self.own(owner) if one.path in taken]
        return any(one.control or one.transactional for one in own)

    def markers(self, owner: TopicPartition, taken: Collection[str]) -> Iterator[tuple[int, int, bool]]:
        """The markers of transactions in files other than ``taken``: producer, offset, committed (C10)."""
        paths = [one.path for one in self.own(owner) if one.control and one.path not in taken]
        reader = DataFiles.of(self.table)
        for file in self.files(paths):
            for batch in reader.batches(Source.of(file), ["key", "offset", "is_control", "producer_id"]):
                for row in batch.filter(pc.fill_null(batch.column("is_control"), fill_value=False)).to_pylist():
                    if row["key"] and row["key"][2:4] in _ENDS:
                        yield row["producer_id"], row["offset"], _ENDS[row["key"][2:4]]

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

    def of(self, target: Table, plan: Plan) -> Basis | ConflictError:
        """The basis of ``plan`` in ``target``, its table.

        It is a conflict if the plan's snapshot is no longer in main's history or does not hold the plan's inputs.
        Raises UnavailableError as ``Plan.check_clock`` does.
        """
        plan.check_clock()
        key = plan.table_uuid, plan.snapshot_id
        if key not in self._known:
            self._known[key] = Basis.find(target, plan.table, plan.snapshot_id, target.properties)
        basis = self._known[key]
        own = {one.path for one in basis.own(plan.topic_partition)} if basis else set[str]()
        if basis is None or not own.issuperset(one.path for one in plan.inputs):
            return ConflictError(
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
