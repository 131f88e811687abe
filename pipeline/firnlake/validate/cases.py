"""The case of each change, in the form that the judge reads: the claim about it, and the data files of every side.

The claim is derived from the change, never taken from its plan. The figures that a plan, a change or a summary tells
are only compared with those of the judge.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.types import UUIDType

from firnlake import clock
from firnlake.clock import show_ms
from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.iceberg.files import name_of
from firnlake.job.change import Change
from firnlake.job.plan import Input, Plan
from firnlake.table.columns import ColumnRoles
from firnlake.table.segment import TAIL
from firnlake.validate.basis import Basis
from firnlake.validate.change import JudgedChange
from firnlake_expectations.claim import Claim, JudgedColumns
from firnlake_expectations.tables import AFTER, BEFORE, IN_PLACE, SHOWN, Part
from firnlake_expectations.visible import Listed

if TYPE_CHECKING:
    from firnlake_expectations.erasure_views import Requested

_NONE: Final[Mapping[str, Listed]] = {}
_BESIDE: Final = 64
"""Bytes that the judge holds per record, in addition to the key."""
_ENCODED: Final = 4
"""Approximate ratio of the size of keys in memory to their size in a file."""


@dataclass(frozen=True)
class Case:
    """One plan to judge; picklable. ``fingerprint`` was taken by compaction; None if the judge must not trust it.

    ``held`` are the bytes that the judge holds of all records, ``read`` the file bytes that it reads, and ``written``
    those of the files that the plan has written; the first two are approximate.
    """

    claim: Claim
    files: tuple[Part, ...]
    fingerprint: int | None
    held: int = 0
    read: int = 0
    written: int = 0
    secret: bytes | None = field(default=None, repr=False)
    """Lane `erase`: the table's UUID, under which the digests of keys are made."""
    digests: tuple[tuple[bytes, int], ...] = field(default=(), repr=False)
    """Lane `erase`: the digest of each requested key, and the offset below which its records are erased."""


@dataclass(frozen=True)
class JudgedRecords:
    """The records of the cases of a table, as the judge reads them; picklable."""

    files: DataFiles = field(repr=False)
    columns: ColumnRoles

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the records that are read."""
        return self.files.arrow_schema()

    @cached_property
    def reading(self) -> JudgedColumns:
        """The roles of the columns in the judge's terms."""
        columns, schema = self.columns, self.files.schema
        condition = columns.is_tombstone
        return JudgedColumns(
            key=columns.key,
            offset=columns.offset,
            topic=columns.topic,
            partition=columns.partition,
            topic_name=columns.topic_name,
            tombstone=condition.judged if condition else None,
            told_by=condition.reads if condition else (),
            level=columns.level,
            delete_horizon=columns.delete_horizon,
            transactions=not columns.adopted,
            uuids=tuple(name for name in columns.key if isinstance(schema.find_field(name).field_type, UUIDType)),
        )

    def case(self, change: JudgedChange, staged: Change | None = None, *, trusted: bool = False) -> Case:
        """The case of ``change``; ``staged`` is the change itself if it is not committed yet, whose fingerprint counts
        if it is ``trusted``."""
        claim = claim_of(change, staged)
        fingerprint = int(staged.fingerprint) if staged and trusted else None
        if change.lane.traits.writes == "deletes":
            shown = tuple(self._part(SHOWN, one, change.before, change.after) for one in change.left)
            read = sum(map(self._narrow, change.left))
            return Case(claim, shown, fingerprint, sum(map(self._held, change.left)), read)
        erases, added = change.lane.traits.serves_requests, (*change.added, *change.beside)
        taken = (*change.removed, *change.returning)
        # What stays must hold no requested record, not even one that row-level deletes hide.
        seen = (*change.removed, *(() if erases else change.left))
        listed = change.basis.deletes.among(seen, self.files)
        sides = ((BEFORE, change.removed), (IN_PLACE, change.left), (BEFORE, change.returning))
        files = [self._part(side, one, listed) for side, some in sides for one in some]
        files += [self._part(AFTER, one) for one in added]
        held, written = sum(map(self._held, (*taken, *added))), _bytes(added)
        read = written + (_bytes([*taken, *change.left]) if fingerprint is None else 0)
        if not erases:
            return Case(claim, tuple(files), fingerprint, held + sum(map(self._held, change.left)), read, written)
        # Of the segments that stay in place, the judge reads the keys, and holds no records.
        read += _bytes(change.left) // _ENCODED
        partition, secret = change.plan.topic_partition.partition, change.basis.table.metadata.table_uuid.bytes
        digests = ((bytes.fromhex(one), each.log_end(partition)) for each in change.requests for one in each.digests)
        return Case(claim, tuple(files), fingerprint, held, read, written, secret, tuple(digests))

    def _part(
        self, side: str, file: DataFile, before: Mapping[str, Listed] = _NONE, after: Mapping[str, Listed] = _NONE
    ) -> Part:
        """``file`` in the judge's form, with its entries before and after the change, if deletes may apply to it."""
        read = partial(_read, self.files, Source.of(file))
        entries = (before.get(file.file_path), after.get(file.file_path))
        return Part(side, read, None, file.file_path, file.record_count, self._may_have_tombstones(file), *entries)

    def _held(self, file: DataFile) -> int:
        """Bytes that the judge holds of the records of ``file``."""
        keys = self.columns.key_bytes_in(file, self.files.schema)
        return file.record_count * _BESIDE + (file.file_size_in_bytes if keys is None else keys * _ENCODED)

    def _narrow(self, file: DataFile) -> int:
        """Bytes of the columns of ``file`` that are read without values; a fixed share of the file if its manifest
        has no column sizes."""
        columns, sizes = self.columns, file.column_sizes or {}
        if any(self._id(name) not in sizes for name in (*columns.key, columns.offset)):
            return file.file_size_in_bytes // _ENCODED
        places = (columns.topic, columns.partition, columns.level, columns.delete_horizon)
        ids = {self._id(name) for name in (*columns.key, columns.offset, *places) if name is not None}
        # Columns that are partition values are not in the file, and flags of transactions take next to no space.
        return sum(sizes.get(one, 0) for one in ids)

    def _may_have_tombstones(self, file: DataFile) -> bool:
        condition = self.columns.is_tombstone
        if condition is None:
            return False
        nulls = (file.null_value_counts or {}).get(self._id(condition.null_of)) if condition.null_of else None
        return nulls != 0

    def _id(self, name: str) -> int:
        return int(self.files.schema.find_field(name).field_id)


def _read(files: DataFiles, source: Source, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    yield from files.batches(source, columns)


def requested(cases: Sequence[Case]) -> "Requested | None":
    """The requests that ``cases`` serve, in the judge's terms; None unless the cases are of lane `erase`."""
    from firnlake_expectations.erasure_views import Requested

    secret = next((case.secret for case in cases if case.secret is not None), None)
    rows = ((number, *one) for number, case in enumerate(cases) for one in case.digests)
    return None if secret is None else Requested(secret, tuple(rows))


Figures = dict[str, tuple[object, object]]
"""By name, a figure as it is told, and as the judge has found it."""


def claim_of(change: JudgedChange, staged: Change | None = None) -> Claim:
    """The claim about ``change``; ``staged`` is the change itself if it is not committed yet."""
    basis, owner, lane = change.basis, change.plan.topic_partition, change.lane
    transactional = basis.transactional(owner, change.taken, lane)
    retention = basis.retention_ms(owner.topic) if lane.traits.cleans else 0
    behind = basis.behind_ms(change.now_ms)
    end, kept_from = basis.log_end(owner), basis.kept_from(owner)
    told = _counted(change) | {"clock": _clock(change.now_ms)}
    if staged:
        told |= _planned(change, staged.plan) | _resulting(change, staged)
    return Claim(
        table=basis.identifier,
        lane=lane.value,
        plan_id=change.plan.id,
        topic=owner.topic,
        partition=owner.partition,
        now_ms=change.now_ms,
        snapshot_id=basis.snapshot.snapshot_id,
        level_out=lane.traits.level_out or 0,
        clean_below=basis.clean_below(owner, change.taken),
        log_end_offset=end,
        kept_from=None if kept_from == end else kept_from,
        delete_retention_ms=None if retention is None else retention + behind,
        transactional=transactional,
        markers=tuple(basis.markers(owner, change.taken)) if transactional and not lane.traits.serves_requests else (),
        figures=tuple((name, str(one), str(found)) for name, (one, found) in told.items()),
        **change.plan.counts.model_dump(exclude={"expired"}),
    )


def _counted(change: JudgedChange) -> Figures:
    """The files and bytes that the record counts tell (C24), and those of the change."""
    counts, written = change.plan.counts, change.added or change.deletes
    told: Figures = {
        "segments read": (counts.segments_in, _segments(change.removed)),
        "bytes read": (counts.bytes_in, _bytes(change.removed)),
        "segments written": (counts.segments_out, _segments(change.added)),
        "bytes written": (counts.bytes_out, _bytes(written)),
    }
    if change.lane.traits.writes == "nothing":  # no judge reads its records
        told["records read"] = (counts.records_in, sum(one.record_count for one in change.removed))
    return told


def _described(basis: Basis, plan: Plan) -> Figures:
    """The inputs that ``plan`` describes otherwise than the manifests do."""
    owner = plan.topic_partition
    known = {one.path: one for one in (*basis.own(owner), *basis.tombstones(owner))}
    wrong: Figures = {}
    for one in (*plan.inputs, *plan.removed_tombstones):
        segment = known.get(one.path)
        found = None if segment is None else Input.of(segment, one.may_stay)
        if one != found:
            wrong[f"input {name_of(one.path)}"] = (one, found)
    return wrong


def _planned(change: JudgedChange, plan: Plan) -> Figures:
    """The figures of ``plan``, and those of the snapshot on which it was made."""
    basis, owner, lane = change.basis, change.plan.topic_partition, change.lane
    taken = {one.path for one in plan.inputs}
    end = basis.log_end(owner)
    told: Figures = {
        "log end": (plan.log_end_offset, end),
        "end that readers may see": (end if plan.kept_from is None else plan.kept_from, basis.kept_from(owner)),
        "lowest offset outside": (plan.clean_below, basis.clean_below(owner, taken)),
        "clock behind": (plan.clock_behind_ms, basis.behind_ms(plan.now_ms)),
        "data sequence number": (plan.sequence_number, basis.data_sequence_number(lane)),
        "transactional": (plan.transactional, basis.transactional(owner, taken, lane)),
        **_described(basis, plan),
    }
    if not lane.traits.serves_requests:  # otherwise, the judge reads all segments, also those that its counts leave out
        counts = change.plan.counts
        told["segments left in place"] = (counts.segments_in_place, _segments(change.left))
        told["bytes left in place"] = (counts.bytes_in_place, _bytes(change.left))
        records = 0 if lane.traits.writes == "deletes" else sum(one.record_count for one in change.left)
        told["records left in place"] = (counts.records_in_place, records)
    if lane.traits.level_out == TAIL:
        back = [name_of(one.path) for one in plan.removed_tombstones]
        told["removed tombstones"] = (sorted(back), sorted(map(name_of, basis.returning(owner, taken))))
    told["requests served"] = (plan.requests, tuple(one.id for one in change.requests))
    return told


def _resulting(change: JudgedChange, staged: Change) -> Figures:
    """What ``staged`` tells beside its counts, and what the files of the change say."""
    told: Figures = {} if change.lane.traits.writes == "nothing" else {"records expired": (staged.counts.expired, 0)}
    if change.lane.traits.writes != "deletes":
        told["delete files merged"] = (len(staged.merged), 0)
    return told


def _clock(planned_ms: int) -> tuple[object, object]:
    latest = clock.latest_ms()
    return show_ms(planned_ms), show_ms(planned_ms) if planned_ms <= latest else f"at most {show_ms(latest)}"


def _segments(files: Sequence[DataFile]) -> int:
    return len({one.file_path for one in files})


def _bytes(files: Sequence[DataFile]) -> int:
    return sum(one.file_size_in_bytes for one in files)
