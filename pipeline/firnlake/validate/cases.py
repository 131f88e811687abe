"""The case of each change, in the form that the judge reads: the claim about it, and the data files of every side.

*Before* is the snapshot on which the plan was made; *after* is that snapshot without the files that the change removes,
and with those that it adds. A staged change is a commit that has not happened yet; of one in the table's history, the
plan is only known in part.

The claim is derived from the change and that snapshot, never taken from the plan. The figures that a plan, a change or
a summary tells are only compared with those of the judge.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.types import UUIDType

from firnlake import clock
from firnlake.clock import show_ms
from firnlake.iceberg.branches import REMOVED_TOMBSTONES
from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.iceberg.deletes import PATH, DeleteFile, compared, place, place_of, positions, values
from firnlake.job.change import Change
from firnlake.job.plan import Plan
from firnlake.table.columns import ColumnRoles
from firnlake.table.segment import Segment
from firnlake.validate.basis import Basis
from firnlake_expectations.case import (
    AFTER,
    BEFORE,
    IN_PLACE,
    Case,
    Claim,
    Deletes,
    JudgedColumns,
    Listed,
    Part,
    Retained,
)

_NONE: Final[Mapping[str, Listed]] = {}
_NEWEST: Final = 2**63 - 1
"""A data sequence number that is higher than all others."""
_NARROW: Final = 4
"""Approximate ratio of the size of a file to that of its columns that are read without values."""


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
            tombstone=condition.judged if condition else None,
            told_by=condition.reads if condition else (),
            level=columns.level,
            delete_horizon=columns.delete_horizon,
            transactions=not columns.adopted,
            uuids=tuple(name for name in columns.key if isinstance(schema.find_field(name).field_type, UUIDType)),
        )

    def case(self, change: Change, basis: Basis, *, trusted: bool = False) -> Case:
        """The case of ``change``, whose plan was made on ``basis``; its fingerprint counts if it is ``trusted``."""
        plan, traits, found = change.plan, change.plan.lane.traits, basis.figures(change.plan)
        erases, converts = traits.serves_requests, traits.writes == "deletes"
        removed = basis.files(change.replaced)
        back = change.replaced_tombstones if erases else [one.path for one in found["removed_tombstones"]]
        returning = basis.files(back, REMOVED_TOMBSTONES)
        if erases:
            left = basis.others(plan.topic_partition, {one.file_path for one in (*removed, *returning)})
        else:
            left = basis.files([one.path for one in plan.inputs if one.path in change.in_place])
        # What stays must hold no requested record, not even one that row-level deletes hide.
        listed = self._listed(basis, removed if erases else [*removed, *left])
        whole = found.keys() <= plan.model_fields_set  # the history does not tell all of a plan
        figures = _counted(change, removed, left if whole and not erases else None) | {"clock": _clock(plan.now_ms)}
        figures |= _planned(plan, {name: one for name, one in found.items() if name in plan.model_fields_set})
        if whole:
            figures |= {"other files whose deletes are merged": (0, _merged(change, basis, listed))}
        claim = _claim(change, basis, found, figures)
        if traits.writes == "nothing":
            return Case(claim, segments=tuple(_segments(plan, basis)))
        added = [*change.kept, *change.quarantined, *change.removed_tombstones]
        sides = [(BEFORE, [*removed, *returning], listed), (AFTER, added, _NONE)]
        if converts:  # the same files are on both sides, with other deletes
            sides += [(BEFORE, left, listed), (AFTER, left, self._converted(change, listed))]
        else:
            sides += [(IN_PLACE, left, listed)]
        files = [(side, one, entries) for side, some, entries in sides for one in some]
        written = _bytes(added)
        # Only the narrow columns of segments are read that lane `convert` leaves, or lane `erase`.
        read = _bytes(left) // _NARROW if converts or erases else 0
        read += written if trusted else _bytes([*removed, *returning, *added])
        return Case(
            claim,
            tuple(self._part(*one) for one in files),
            int(change.fingerprint) if trusted else None,
            basis.table.metadata.table_uuid.bytes if erases else None,
            tuple(
                (bytes.fromhex(digest), one.log_end(plan.partition))
                for one in basis.requests(plan)
                for digest in one.digests
            ),
            read=read,
            written=written,
        )

    def _listed(self, basis: Basis, files: Sequence[DataFile]) -> dict[str, Listed]:
        """The entries of the data ``files`` of one case, by path; empty if no delete can apply."""
        if not basis.deletes:
            return {}
        entries = {one.file_path: basis.entries()[one.file_path][0] for one in files}
        places = {None, *(place_of(one.data_file) for one in entries.values())}
        near = tuple(self._deletes(one) for one in basis.deletes if _scope(one) in places or one.only in entries)
        return {path: Listed(one.sequence_number or 0, place_of(one.data_file), near) for path, one in entries.items()}

    def _converted(self, change: Change, listed: Mapping[str, Listed]) -> dict[str, Listed]:
        """The entries ``listed`` after ``change`` of lane `convert`: with its deletes, and without those that it merges
        and all equality deletes, which it has converted."""
        # Its delete files will be newer than all files of the table.
        staged = [self._deletes(DeleteFile.of(one, _NEWEST, self.files.specs)) for one in change.deletes]
        return {
            path: replace(
                one,
                deletes=(*(old for old in one.deletes if old.name not in change.merged and not old.columns), *staged),
            )
            for path, one in listed.items()
        }

    def _deletes(self, delete: DeleteFile) -> Deletes:
        """The ``delete`` file in the judge's form."""
        columns = tuple(compared(self.files, delete)) if delete.is_equality else ()
        read = partial(values if delete.is_equality else positions, self.files, delete)
        return Deletes(delete.path, delete.sequence_number, _scope(delete), delete.only, columns, read)

    def _part(self, side: str, file: DataFile, listed: Mapping[str, Listed]) -> Part:
        """``file`` in the judge's form, with its entry in ``listed``, if deletes may apply to it."""
        read, entry = partial(self.files.batches, Source.of(file)), listed.get(file.file_path)
        # No delete applies to a file that is written, so this one is on side BEFORE as well, which counts its records.
        number = None if side == AFTER and entry else file.record_count
        return Part(side, read, file.file_path, number, self._may_have_tombstones(file), entry)

    def _may_have_tombstones(self, file: DataFile) -> bool:
        condition = self.columns.is_tombstone
        if condition is None:
            return False
        if not condition.null_of:
            return True
        return (file.null_value_counts or {}).get(self.files.schema.find_field(condition.null_of).field_id) != 0


def _scope(delete: DeleteFile) -> str | None:
    """The Iceberg partition to whose files the delete file may apply; None: to files of all partitions."""
    return None if delete.everywhere else place(delete.source.spec_id, delete.source.partition)


Figures = dict[str, tuple[object, object]]
"""By name, a figure as it is told, and as the judge has found it."""


def _claim(change: Change, basis: Basis, found: Mapping[str, Any], figures: Figures) -> Claim:
    plan, traits, policy = change.plan, change.plan.lane.traits, basis.policy(change.plan.topic)
    retention_ms = policy.delete_retention_ms if policy else None
    own = ("clean_below", "log_end_offset", "kept_from")
    return Claim(
        table=basis.identifier,
        lane=plan.lane.value,
        plan_id=plan.id,
        topic=plan.topic,
        partition=plan.partition,
        now_ms=plan.now_ms,
        snapshot_id=basis.snapshot.snapshot_id,
        level_out=traits.level_out or 0,
        delete_retention_ms=(
            0 if not traits.cleans else None if retention_ms is None else retention_ms + found["clock_behind_ms"]
        ),
        markers=tuple(basis.markers(plan)) if found["transactional"] and not traits.serves_requests else (),
        figures=tuple((name, str(told), str(one)) for name, (told, one) in figures.items()),
        counts=Counter(change.counts.model_dump()),
        **{name: found[name] for name in own},
    )


def _counted(change: Change, removed: Sequence[DataFile], left: Sequence[DataFile] | None) -> Figures:
    """What the record counts tell of files (C24), and what the files of the change say: those that it has ``removed``
    and added, and those that are ``left`` in place, unless they are None."""
    counts, writes = change.counts, change.plan.lane.traits.writes
    found = {
        "segments_in": _number(removed),
        "bytes_in": _bytes(removed),
        "segments_out": _number(change.kept),
        "bytes_out": _bytes([*change.kept, *change.deletes]),
        "expired": 0,
    }
    if writes == "nothing":  # no judge reads its records
        found["expired"] = found["records_in"] = sum(one.record_count for one in removed)
    if left is not None:
        found["segments_in_place"], found["bytes_in_place"] = _number(left), _bytes(left)
        found["records_in_place"] = 0 if writes == "deletes" else sum(one.record_count for one in left)
    figures: Figures = {name.replace("_", " "): (getattr(counts, name), own) for name, own in found.items()}
    if writes != "deletes":
        figures["delete files written or merged"] = (len(change.deletes) + len(change.merged), 0)
    return figures


_decisive: Final = attrgetter("path", "level", "base_offset", "last_offset", "records", "bytes", "copies", "deletes")
"""The facts of an input by which its plan is carried out. The other ones, such as the time of a commit that has expired
since, have decided when the plan is due."""


def _planned(plan: Plan, found: Mapping[str, Any]) -> Figures:
    """What ``plan`` tells, and what the judge has ``found``; of lists, only what is in one of them alone."""
    figures: Figures = {}
    for name, own in found.items():
        told = getattr(plan, name)
        if name in ("inputs", "removed_tombstones"):
            told, own = tuple(map(_decisive, told)), tuple(map(_decisive, own))
        if isinstance(told, tuple):
            same = {*told}.intersection(own)
            told, own = ([one for one in some if one not in same] for some in (told, own))
        figures[name.replace("_", " ")] = (told, own)
    return figures


def _merged(change: Change, basis: Basis, listed: Mapping[str, Listed]) -> int:
    """The number of live data files that are no inputs, but that a position delete file names which ``change`` merges
    and so removes: their hidden records would be visible again."""
    inputs = {one.path for one in change.plan.inputs}
    deletes = {one.name: one for entry in listed.values() for one in entry.deletes if one.name in change.merged}
    named = {
        path for one in deletes.values() for rows in one.read() for path in pc.unique(rows.column(PATH)).to_pylist()
    }
    return len({path for path in named if path not in inputs and path in basis.entries()})


def _segments(plan: Plan, basis: Basis) -> Iterator[Retained]:
    """The segments with records of the topic partition of ``plan``, and the strays that may hold some."""
    owner, policy = plan.topic_partition, basis.policy(plan.topic)
    taken: Collection[str] = {one.path for one in plan.inputs}
    limits = (policy.retention_ms, policy.retention_bytes) if policy and policy.deletes else (-1, -1)
    for one in basis.own(owner):
        if one.records:
            offsets = one.base_offset, one.last_offset
            yield Retained(str(one), *offsets, one.records, one.bytes, _since_ms(one), one.path in taken, *limits)
    for stray in basis.segments.strays_of(owner):
        yield Retained(str(stray), stray.base_offset, stray.base_offset, 0, 0, None, goes=False)


def _since_ms(segment: Segment) -> int | None:
    """The time from which a segment's age counts; None if it is unknown. Records without a timestamp count from their
    landing (C19)."""
    if segment.oldest_ms >= 0:
        return segment.newest_ms
    landed = [one for one in (segment.committed_ms, segment.written_ms) if one is not None]
    return max(segment.newest_ms, *landed) if landed else None


def _clock(planned_ms: int) -> tuple[object, object]:
    latest = clock.latest_ms()
    return show_ms(planned_ms), show_ms(planned_ms) if planned_ms <= latest else f"at most {show_ms(latest)}"


def _number(files: Sequence[DataFile]) -> int:
    return len({one.file_path for one in files})


def _bytes(files: Sequence[DataFile]) -> int:
    return sum(one.file_size_in_bytes for one in files)
