"""The case of each plan: its claim, and the data files of every side, as the judge is to read them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import UUIDType

from expectations.claim import Claim
from expectations.reading import Reading
from expectations.tables import AFTER, BEFORE, IN_PLACE, Part
from pipeline.errors import RefusedError, UnavailableError
from pipeline.history.record_counts import RecordCounts
from pipeline.lake.columns import Columns
from pipeline.lake.data_files import DataFiles, Source
from pipeline.plan import Plan
from pipeline.stage import Stage

if TYPE_CHECKING:
    from expectations.claim import Lane as JudgedLane

_BESIDE: Final = 64
"""Bytes that the judge holds of a record beside its key."""
_ENCODED: Final = 4
"""Keys take about so many times their size in a file."""


@dataclass(frozen=True)
class Listed:
    """A data file of one side, with what its manifest tells of it.

    ``bytes`` are what is read of it when values are, ``held`` what the judge holds of its records, about.
    """

    side: str
    source: Source
    held: int
    tombstones: bool = True
    files: DataFiles | None = field(default=None, repr=False)
    """How it is opened, where it is of a table beside."""

    @property
    def bytes(self) -> int:
        return self.source.bytes


@dataclass(frozen=True)
class Case:
    """One plan to be judged. ``fingerprint`` is what compacting has taken; None: nothing it says is believed."""

    claim: Claim
    files: tuple[Listed, ...]
    fingerprint: int | None

    @property
    def held(self) -> int:
        """Bytes that the judge holds of all records, about."""
        return sum(file.held for file in self.files)

    @property
    def read(self) -> int:
        """File bytes of what is read with its values."""
        return sum(file.bytes for file in self.files if file.side == AFTER or self.fingerprint is None)


@dataclass(frozen=True)
class Records:
    """How the records of the cases are read; picklable."""

    files: DataFiles = field(repr=False)
    reading: Reading

    @classmethod
    def of(cls, files: DataFiles, columns: Columns) -> "Records":
        return cls(files, reading_of(files, columns))

    @property
    def schema(self) -> pa.Schema:
        """The types that records are read in."""
        return self.files.arrow_schema()

    def parts(self, cases: Sequence[Case]) -> list[Part]:
        """Everything that ``cases`` read and wrote; the plan of a part is the place of its case."""
        return [self.part(file, number, case.claim) for number, case in enumerate(cases) for file in case.files]

    def part(self, file: Listed, number: int, claim: Claim) -> Part:
        """A data file as the judge takes it."""
        return Part(
            file.side,
            partial(_read, file.files or self.files, file.source, claim.plan_id),
            number,
            file.source.path,
            file.source.records,
            file.tombstones,
        )


def _read(files: DataFiles, source: Source, plan: str, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    try:
        yield from files.batches(source, columns)
    except (RefusedError, UnavailableError) as error:
        raise type(error)(f"plan {plan} could not be validated: {error}") from error


def reading_of(files: DataFiles, columns: Columns) -> Reading:
    """What the columns are to the judge."""
    condition = columns.is_tombstone
    told_by = condition.reads if condition else ()
    if len({name.lower() for name in told_by}) < len(told_by):
        raise RefusedError(
            f"{files.subject}: the tombstone condition reads the columns {', '.join(told_by)}; allowed: names that "
            "differ by more than capitals"
        )
    return Reading(
        key=columns.key,
        offset=columns.offset,
        topic=columns.topic,
        partition=columns.partition,
        topic_name=columns.topic_name,
        tombstone=condition.sql if condition else None,
        told_by=told_by,
        level=columns.level,
        delete_horizon=columns.delete_horizon,
        transactions=not columns.adopted,
        uuids=tuple(name for name in columns.key if isinstance(files.schema.find_field(name).field_type, UUIDType)),
    )


def cases_of(stage: Stage, *, trusted: bool) -> list[Case]:
    """The cases of all plans of ``stage`` that have a result.

    ``trusted``: the fingerprint that compacting took vouches for the values that were read.
    """
    books = stage.books
    if books is None or not books.plans:
        raise RefusedError(
            f"stage {stage.identifier} is {stage.state}; allowed: a result with its record counts (firn compact)"
        )
    columns = Columns.of(stage.table, stage.identifier)
    listing = Listing(stage.table.schema(), columns)
    inputs: dict[str, list[DataFile]] = {}
    for file in stage.inputs():
        inputs.setdefault(file.file_path, []).append(file)
    replaced, written = stage.replaced(), stage.sorted_files()
    found = []
    for plan in stage.plans:
        if plan.id not in books.plans:
            continue
        gone = {*replaced[plan.id], *(one.path for one in plan.buried)}
        sides = [(BEFORE if path in gone else IN_PLACE, path) for path in _paths(plan)]
        files = [listing.file(side, file) for side, path in sides for file in inputs.get(path, ())]
        files += [listing.file(AFTER, file) for file in written[plan.id].all]
        taken = books.fingerprints.get(plan.id) if trusted else None
        found.append(Case(_claim(plan, books.plans[plan.id]), tuple(files), None if taken is None else int(taken)))
    return found


def _paths(plan: Plan) -> Mapping[str, None]:
    """The paths that a plan reads, each once: the listing tells how often."""
    return dict.fromkeys(one.path for one in (*plan.inputs, *plan.buried))


@dataclass(frozen=True)
class Listing:
    """What manifests tell of data files, by the columns of their table."""

    schema: Schema
    columns: Columns

    def file(self, side: str, file: DataFile, files: DataFiles | None = None) -> Listed:
        """``file`` as one of ``side``; ``files`` opens it where it is of a table beside."""
        ids = [self._id(name) for name in self.columns.key]
        sizes = file.column_sizes or {}
        keys = (
            sum(sizes[one] for one in ids) * _ENCODED if all(one in sizes for one in ids) else file.file_size_in_bytes
        )
        return Listed(side, Source.of(file), file.record_count * _BESIDE + keys, self._may_have_tombstones(file), files)

    def _may_have_tombstones(self, file: DataFile) -> bool:
        condition = self.columns.is_tombstone
        if condition is None:
            return False
        nulls = (file.null_value_counts or {}).get(self._id(condition.null_of)) if condition.null_of else None
        return nulls != 0

    def _id(self, name: str) -> int:
        return int(self.schema.find_field(name).field_id)


def _claim(plan: Plan, counts: RecordCounts) -> Claim:
    return Claim(
        table=plan.table,
        # Lane retain has no stage, so no claim is ever made for it.
        lane=cast("JudgedLane", plan.lane.value),
        plan_id=plan.id,
        topic=plan.topic,
        partition=plan.partition,
        now_ms=plan.now_ms,
        level_out=plan.level_out,
        clean_below=plan.clean_below,
        log_end_offset=plan.log_end_offset,
        delete_retention_ms=plan.delete_retention_ms,
        transactional=plan.transactional,
        markers=plan.markers,
        **counts.model_dump(exclude={"expired"}),
    )
