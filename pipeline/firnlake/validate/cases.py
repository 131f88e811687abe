"""The case of each change, in the form that the judge reads: the claim about it, and the data files of every side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import UUIDType

from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.job.lane import Lane
from firnlake.table.columns import ColumnRoles
from firnlake.validate.change import JudgedChange
from firnlake.validate.deletes import ListedAs, reading_for
from firnlake_expectations.claim import Claim, JudgedColumns
from firnlake_expectations.tables import AFTER, BEFORE, IN_PLACE, SHOWN, Part

if TYPE_CHECKING:
    from firnlake_expectations.erasure_views import Requested


_BESIDE: Final = 64
"""Bytes that the judge holds per record, in addition to the key."""
_ENCODED: Final = 4
"""Approximate ratio of the size of keys in memory to their size in a file."""


@dataclass(frozen=True)
class JudgedFile:
    """A data file of one side, with facts from its manifest.

    The judge reads ``bytes`` of the file if it reads values, otherwise about ``narrow`` bytes, and holds about ``held``
    bytes in memory. On side SHOWN, ``listed`` is the file's entry before the plan, and ``after`` the entry afterwards.
    """

    side: str
    source: Source
    held: int
    narrow: int
    tombstones: bool = True
    listed: ListedAs | None = None
    after: ListedAs | None = None

    @property
    def bytes(self) -> int:
        return self.source.bytes


@dataclass(frozen=True)
class Case:
    """One plan to judge. ``fingerprint`` was taken by compaction; None if the judge must not trust compaction."""

    claim: Claim
    files: tuple[JudgedFile, ...]
    fingerprint: int | None
    secret: bytes | None = field(default=None, repr=False)
    """Lane `erase`: the table's UUID, under which the digests of keys are made."""
    digests: tuple[tuple[bytes, int], ...] = field(default=(), repr=False)
    """Lane `erase`: the digest of each requested key, and the offset below which its records are erased."""

    @property
    def held(self) -> int:
        """Bytes that the judge holds of all records, approximately."""
        return sum(file.held for file in self.files)

    @property
    def read(self) -> int:
        """File bytes that are read with values, and for lane `erase` also the keys of the segments that stay in place.
        For lane `convert`, no values are read."""
        if Lane(self.claim.lane).traits.writes == "deletes":
            return sum(file.narrow for file in self.files)
        values = sum(file.bytes for file in self.files if file.side == AFTER or self.fingerprint is None)
        left = (file.bytes for file in self.files if file.side == IN_PLACE and self.secret is not None)
        return values + sum(left) // _ENCODED


@dataclass(frozen=True)
class JudgedRecords:
    """Reader of the records of cases; picklable."""

    files: DataFiles = field(repr=False)
    reading: JudgedColumns

    @classmethod
    def of(cls, files: DataFiles, columns: ColumnRoles) -> "JudgedRecords":
        return cls(files, _reading_of(files, columns))

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the records that are read."""
        return self.files.arrow_schema()

    def parts(self, cases: Sequence[Case]) -> list[Part]:
        """All files that ``cases`` read and wrote; the ``plan`` of a part is the index of its case."""
        return [self.part(file, number, case.claim) for number, case in enumerate(cases) for file in case.files]

    def part(self, file: JudgedFile, number: int, claim: Claim) -> Part:
        """The data file ``file`` of case ``number`` in the judge's form."""
        return Part(
            file.side,
            partial(_read, self.files, file.source, claim.plan_id),
            number,
            file.source.path,
            file.source.records,
            file.tombstones,
            *(one.told(self.files, claim.plan_id) if one else None for one in (file.listed, file.after)),
        )


def _read(files: DataFiles, source: Source, plan: str, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    with reading_for(plan):
        yield from files.batches(source, columns)


def _reading_of(files: DataFiles, columns: ColumnRoles) -> JudgedColumns:
    """The roles of ``columns`` in the judge's terms."""
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
        uuids=tuple(name for name in columns.key if isinstance(files.schema.find_field(name).field_type, UUIDType)),
    )


def case_of(change: JudgedChange, listing: "ListedFacts", claim: Claim, fingerprint: int | None = None) -> Case:
    """The case of ``change`` with its ``claim``. ``fingerprint`` is compaction's, if the judge trusts it."""
    if change.lane.traits.writes == "deletes":
        before, after = change.before, change.after
        shown = (listing.file(SHOWN, one, before.get(one.file_path), after.get(one.file_path)) for one in change.left)
        return Case(claim, tuple(shown), fingerprint)
    # What stays must hold no requested record, not even one that row-level deletes hide.
    erases = change.lane.traits.serves_requests
    listed = change.basis.deletes.among((*change.removed, *(() if erases else change.left)))
    sides = ((BEFORE, change.removed), (IN_PLACE, change.left), (BEFORE, change.returning))
    files = [listing.file(side, one, listed.get(one.file_path)) for side, some in sides for one in some]
    files += [listing.file(AFTER, one) for one in (*change.added, *change.beside)]
    if not erases:
        return Case(claim, tuple(files), fingerprint)
    # The judge holds no records of the segments that stay in place.
    files = [replace(one, held=0) if one.side == IN_PLACE else one for one in files]
    partition = change.plan.partition
    digests = ((bytes.fromhex(one), each.log_end(partition)) for each in change.requests for one in each.digests)
    return Case(claim, tuple(files), fingerprint, change.basis.table.metadata.table_uuid.bytes, tuple(digests))


@dataclass(frozen=True)
class ListedFacts:
    """Facts from manifests about data files, by the columns of their table."""

    schema: Schema
    columns: ColumnRoles

    def file(
        self, side: str, file: DataFile, listed: ListedAs | None = None, after: ListedAs | None = None
    ) -> JudgedFile:
        """``file`` as a file of ``side``; ``listed`` and ``after`` are given if row-level deletes may apply to it."""
        keys = self.columns.key_bytes_in(file, self.schema)
        held = file.record_count * _BESIDE + (file.file_size_in_bytes if keys is None else keys * _ENCODED)
        narrow = self._narrow(file)
        return JudgedFile(side, Source.of(file), held, narrow, self._may_have_tombstones(file), listed, after)

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
        return int(self.schema.find_field(name).field_id)


def requested(cases: Sequence[Case]) -> "Requested | None":
    """The requests that ``cases`` serve, in the judge's terms; None unless the cases are of lane `erase`."""
    from firnlake_expectations.erasure_views import Requested

    secret = next((case.secret for case in cases if case.secret is not None), None)
    rows = ((number, *one) for number, case in enumerate(cases) for one in case.digests)
    return None if secret is None else Requested(secret, tuple(rows))
