"""The books of a job: what became of the records of each of its plans (C24)."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipeline.compact import fate
from pipeline.errors import RefusedError
from pipeline.lake import Lake
from pipeline.plan import Plan
from pipeline.sense import Lane
from pipeline.stage import Accounting, Books, Stage
from pipeline.stage.stage import SortedFiles

_SURVIVED = "survived"
_HIGH, _LOW = "checksum, high", "checksum, low"
_HALF = 32


def counts_of(plan: Plan, fingerprints: Column) -> list[Column]:
    """Aggregates over judged records of jobs like that of ``plan``: how many met each fate that they can meet, and the
    sum of ``fingerprints`` as sums of halves, which are exact."""
    cleaned = plan.lane is not Lane.MERGE
    possible = [fate.REMOVED, fate.QUARANTINED] if cleaned else []
    possible += [fate.RESTORED] if plan.buried else []
    possible += [fate.OF_ABORTED, fate.MARKER_REMOVED] if plan.transactional else []
    fates = [F.count_if(F.col(fate.FATE) == one).alias(fate.NAMES[one]) for one in possible]
    survived = [F.count_if(F.col(fate.IS_NEWEST)).alias(_SURVIVED)] if cleaned else []
    high, low = F.shiftright(fingerprints, _HALF), fingerprints.bitwiseAND((1 << _HALF) - 1)
    return [*fates, *survived, F.sum(high).alias(_HIGH), F.sum(low).alias(_LOW)]


@dataclass(frozen=True)
class Written:
    """What was counted while a result was written: ``counts_of`` all plans together, repeated records by the number of
    the plan, paths of the inputs that stay in place, how many ``survivors`` pass 1 has found among the others, and the
    numbers of the plans that are not in the result."""

    counts: Counter[str]
    repeated: Mapping[int, int]
    stay: frozenset[str]
    survivors: int = 0
    refused: frozenset[int] = frozenset()

    @property
    def checksum(self) -> int:
        """The sum of the fingerprints of all records written."""
        return (self.counts[_HIGH] << _HALF) + self.counts[_LOW]

    def of(self, one: int) -> int:
        """How many records met the fate ``one``."""
        return self.counts[fate.NAMES[one]]


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
    # What only a plan with a job of its own may hold.
    restored, aborted, markers = (
        written.of(one) if alone else 0 for one in (fate.RESTORED, fate.OF_ABORTED, fate.MARKER_REMOVED)
    )
    records_in = sum(segment.records for segment in taken) + restored
    records_out = sum(file.record_count for file in files.kept)
    quarantined = sum(file.record_count for file in files.quarantined)
    removed = sum(file.record_count for file in files.buried)
    return Accounting(
        records_in=records_in,
        records_out=records_out,
        # What is superseded is not looked at; that every survivor was found says that nothing else is missing.
        superseded=records_in - records_out - quarantined - removed - aborted - markers,
        repeated=written.repeated.get(number, 0),
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
    """The plans' books together are what was counted record by record, and every survivor was met."""
    if written.counts[_SURVIVED] != written.survivors:
        raise RefusedError(
            f"stage {stage.identifier}: {written.survivors} records are the newest of their key, "
            f"{written.counts[_SURVIVED]} of them were read again; allowed: equal"
        )
    for one, booked in (
        (fate.REMOVED, sum(plan.tombstones_removed for plan in books.values())),
        (fate.QUARANTINED, sum(plan.quarantined for plan in books.values())),
    ):
        if written.of(one) != booked:
            raise RefusedError(
                f"stage {stage.identifier}: {written.of(one)} records were {fate.NAMES[one]}, in the books are "
                f"{booked}; allowed: equal"
            )
