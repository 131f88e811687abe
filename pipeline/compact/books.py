"""The books of a job: what became of the records of each of its plans (C24)."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipeline.compact import fate
from pipeline.errors import RefusedError
from pipeline.lake import Lake
from pipeline.plan import Plan
from pipeline.stage import Accounting, Books, Stage
from pipeline.stage.stage import SortedFiles

_HIGH, _LOW = "checksum, high", "checksum, low"
_HALF = 32


def checksum_of(fingerprints: Column) -> list[Column]:
    """Aggregates whose sum is exact, which that of many bigints is not: of the high and of the low halves."""
    high, low = F.shiftright(fingerprints, _HALF), fingerprints.bitwiseAND((1 << _HALF) - 1)
    return [F.sum(high).alias(_HIGH), F.sum(low).alias(_LOW)]


@dataclass(frozen=True)
class Written:
    """What was counted while a result was written: records by fate and ``checksum_of``, of all plans together, repeated
    ones by the number of the plan, paths of the inputs that stay in place, and the numbers of the plans that are not in
    the result."""

    fates: Mapping[str, int]
    repeated: Mapping[int, int]
    stay: frozenset[str]
    refused: frozenset[int] = frozenset()

    @property
    def checksum(self) -> int:
        """The sum of the fingerprints of all records written."""
        return (self.fates[_HIGH] << _HALF) + self.fates[_LOW]


def record(lake: Lake, stage: Stage, written: Written) -> Stage:
    """Record the books of the stage's result; RefusedError when they do not balance."""
    stage = Stage.load(lake, stage.identifier)
    files = stage.sorted_files()
    books = {
        plan.id: _account(plan, number, files[plan.id], written, alone=len(stage.plans) == 1)
        for number, plan in enumerate(stage.plans)
        if number not in written.refused
    }
    for plan_id, accounting in books.items():
        accounting.check(f"stage {stage.identifier}, plan {plan_id}")
    _check_sum(stage, books, written)
    return stage.record_books(lake, Books(checksum=str(written.checksum), plans=books))


def _account(plan: Plan, number: int, files: SortedFiles, written: Written, *, alone: bool) -> Accounting:
    taken = [segment for segment in plan.inputs if segment.path not in written.stay]
    left = [segment for segment in plan.inputs if segment.path in written.stay]
    fates = written.fates
    # What only a plan with a job of its own may hold.
    restored, aborted, markers = (
        fates[name] if alone else 0 for name in (fate.RESTORED, fate.OF_ABORTED, fate.MARKER_REMOVED)
    )
    repeated = written.repeated.get(number, 0)
    records_in = sum(segment.records for segment in taken) + restored
    records_out = sum(file.record_count for file in files.kept)
    quarantined = sum(file.record_count for file in files.quarantined)
    removed = sum(file.record_count for file in files.buried)
    # Spark counts for the job as a whole: what one of several plans has lost is what did not come out of it.
    superseded = fates[fate.SUPERSEDED] + repeated if alone else records_in - records_out - quarantined - removed
    return Accounting(
        records_in=records_in,
        records_out=records_out,
        superseded=superseded,
        repeated=repeated,
        tombstones_removed=removed,
        quarantined=quarantined,
        restored=restored,
        aborted=aborted,
        markers_removed=markers,
        bytes_in=sum(segment.bytes for segment in taken),
        bytes_out=sum(file.file_size_in_bytes for file in files.kept),
        segments_in=len(taken),
        segments_out=len(files.kept),
        segments_left=len(left),
        records_left=sum(segment.records for segment in left),
        bytes_left=sum(segment.bytes for segment in left),
    )


def _check_sum(stage: Stage, books: Mapping[str, Accounting], written: Written) -> None:
    """The plans' books together are what was counted record by record."""
    repeated = sum(count for number, count in written.repeated.items() if number not in written.refused)
    for name, counted, booked in (
        (fate.SUPERSEDED, written.fates[fate.SUPERSEDED] + repeated, sum(one.superseded for one in books.values())),
        (fate.REMOVED, written.fates[fate.REMOVED], sum(one.tombstones_removed for one in books.values())),
        (fate.QUARANTINED, written.fates[fate.QUARANTINED], sum(one.quarantined for one in books.values())),
    ):
        if counted != booked:
            raise RefusedError(
                f"stage {stage.identifier}: {counted} records were {name}, in the books are {booked}; allowed: equal"
            )
