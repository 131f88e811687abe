"""The record counts of a plan: the outcomes of the records that it read (C24)."""

from collections.abc import Sequence

from pyiceberg.manifest import DataFile

from pipeline.compact.outcome import Outcome
from pipeline.compact.tasks import Result
from pipeline.history.record_counts import RecordCounts
from pipeline.plan import Input, Plan
from pipeline.sense import Lane
from pipeline.sense.lanes import HIDING
from pipeline.staging.result import PlanFiles


def counts_of(plan: Plan, files: PlanFiles, result: Result) -> RecordCounts:
    """The record counts of ``plan``, whose result is in ``files``."""
    if plan.lane in HIDING:
        return _of_hidden(plan, files, result)
    counts = result.counts
    taken = [segment for segment in plan.inputs if segment.path not in result.in_place]
    in_place = [segment for segment in plan.inputs if segment.path in result.in_place]
    whole = plan.lane in (Lane.ERASE, Lane.MERGE)
    repeated = counts[Outcome.REPEATED] + (0 if whole else _further_listings(taken))
    restored, deleted = counts[Outcome.RESTORED], counts[Outcome.DELETED]
    beside = {segment.path for segment in plan.removed_tombstones}
    erased_beside = sum(one.records for one in result.destroyed if one.path in beside)
    return RecordCounts(
        records_in=sum(segment.records for segment in taken) - deleted + restored + erased_beside,
        records_out=_records(files.kept),
        superseded=counts[Outcome.SUPERSEDED] + repeated,
        repeated=repeated,
        tombstones_removed=0 if plan.lane is Lane.ERASE else _records(files.removed_tombstones),
        quarantined=_records(files.quarantined),
        restored=restored,
        aborted=counts[Outcome.ABORTED],
        markers_removed=counts[Outcome.MARKER_REMOVED],
        erased=counts[Outcome.ERASED],
        deleted=deleted,
        bytes_in=sum(segment.bytes for segment in taken),
        bytes_out=sum(file.file_size_in_bytes for file in files.kept),
        segments_in=len(taken),
        segments_out=len(files.kept),
        segments_in_place=len(in_place),
        records_in_place=sum(segment.records for segment in in_place),
        bytes_in_place=sum(segment.bytes for segment in in_place),
    )


def _of_hidden(plan: Plan, files: PlanFiles, result: Result) -> RecordCounts:
    """The counts of a lane that hides: all segments stay, and the bytes written are those of its delete files."""
    deleted, superseded = result.counts[Outcome.DELETED], result.counts[Outcome.SUPERSEDED]
    visible = plan.records - deleted
    return RecordCounts(
        records_in=visible,
        records_out=visible - superseded,
        superseded=superseded,
        tombstones_removed=0,
        quarantined=0,
        deleted=deleted,
        bytes_in=0,
        bytes_out=sum(file.file_size_in_bytes for file in files.deletes),
        segments_in=0,
        segments_out=0,
        segments_in_place=len(plan.inputs),
        bytes_in_place=plan.bytes,
    )


def _further_listings(taken: Sequence[Input]) -> int:
    """Records of repeated listings of a file, beyond the first: the file is read once."""
    return sum(one.records - one.records // one.copies for one in taken)


def _records(files: Sequence[DataFile]) -> int:
    return sum(file.record_count for file in files)
