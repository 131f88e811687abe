"""The books of a job: what became of the records of each of its plans (C24)."""

from collections.abc import Mapping, Sequence

from pyiceberg.manifest import DataFile

from pipeline.compact.outcome import Outcome
from pipeline.compact.tasks import Result
from pipeline.plan import Input, Plan
from pipeline.sense import Lane
from pipeline.stage import Accounting, Books, Stage
from pipeline.stage.stage import SortedFiles


def books_of(stage: Stage, results: Mapping[str, Result]) -> Books:
    """The books of the ``results``, by plan id; RefusedError when they do not balance."""
    files = stage.sorted_files()
    plans = {plan.id: _account(plan, files[plan.id], results[plan.id]) for plan in stage.plans if plan.id in results}
    for plan_id, accounting in plans.items():
        accounting.check(f"stage {stage.identifier}, plan {plan_id}")
    return Books(fingerprints={plan_id: str(results[plan_id].fingerprint) for plan_id in plans}, plans=plans)


def _account(plan: Plan, files: SortedFiles, result: Result) -> Accounting:
    counts = result.counts
    taken = [segment for segment in plan.inputs if segment.path not in result.in_place]
    in_place = [segment for segment in plan.inputs if segment.path in result.in_place]
    repeated = counts[Outcome.REPEATED] + (0 if plan.lane is Lane.MERGE else _further_listings(taken))
    restored = counts[Outcome.RESTORED]
    return Accounting(
        records_in=sum(segment.records for segment in taken) + restored,
        records_out=_records(files.kept),
        superseded=counts[Outcome.SUPERSEDED] + repeated,
        repeated=repeated,
        tombstones_removed=_records(files.buried),
        quarantined=_records(files.quarantined),
        restored=restored,
        aborted=counts[Outcome.ABORTED],
        markers_removed=counts[Outcome.MARKER_REMOVED],
        bytes_in=sum(segment.bytes for segment in taken),
        bytes_out=sum(file.file_size_in_bytes for file in files.kept),
        segments_in=len(taken),
        segments_out=len(files.kept),
        segments_left=len(in_place),
        records_left=sum(segment.records for segment in in_place),
        bytes_left=sum(segment.bytes for segment in in_place),
    )


def _further_listings(taken: Sequence[Input]) -> int:
    """Records of files that the table lists more than once, beyond the first listing: they are read once."""
    return sum(one.records - one.records // one.copies for one in taken)


def _records(files: Sequence[DataFile]) -> int:
    return sum(file.record_count for file in files)
