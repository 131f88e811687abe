"""Subcommand ``run``: the whole chain in one process."""

from collections import defaultdict
from typing import Annotated, Any

import typer

from firnlake.cli import show
from firnlake.cli.options import (
    AsJson,
    EngineName,
    Force,
    FromOffset,
    FromTime,
    Instead,
    Now,
    Partitions,
    TableName,
    Topics,
    UntilOffset,
    UntilTime,
    asked,
    at,
    engines,
)
from firnlake.errors import ConflictError
from firnlake.iceberg.catalog import Lake
from firnlake.job.lane import POSITION_DELETING, Lane
from firnlake.run import LaneRun
from firnlake.run import run as run_lanes
from firnlake.table.partition import ScopeBounds
from firnlake.table.published_plans import RecordCounts


def run(
    table: TableName,
    lane: Annotated[Lane | None, typer.Option("--lane", help="Run only this lane. Default: all, in order.")] = None,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Repeat until nothing is due.")] = False,
    force: Force = False,
    topic: Topics = None,
    partition: Partitions = None,
    from_offset: FromOffset = None,
    until_offset: UntilOffset = None,
    from_time: FromTime = None,
    until_time: UntilTime = None,
    properties: Instead = None,
    now: Now = None,
    engine: EngineName = None,
    as_json: AsJson = False,
) -> None:
    """Sense, plan, compact, validate and publish, in one process; Spark is started only when a lane needs it."""
    lake = Lake.load()
    lanes = (lane,) if lane else tuple(Lane)
    scope = asked(topic, partition, ScopeBounds(from_offset, until_offset, from_time, until_time), properties)
    done = []
    with engines(engine, f"firn run {table}", as_json) as started:
        for result in run_lanes(lake, table, at(now), started.of, lanes, force, until_idle, scope):
            done.append(result)
            if not as_json:
                _show(result)
    if any(result.plans for result in done if result.lane is not Lane.RETAIN):
        from firnlake.validate.validate import build_reports

        index = build_reports(lake)
        if not as_json:
            show.line(f"data-quality report: {index}")
    if as_json:
        show.as_json([_as_dict(result) for result in done])
    failures = [one for result in done for one in result.failures.items()]
    show.end([error if isinstance(error, ConflictError) else f"{title}: {error}" for title, error in failures])


def _show(result: LaneRun) -> None:
    if not result.plans:
        show.line(f"{result.lane}: nothing due")
        return
    by_snapshot: dict[int, list[RecordCounts]] = defaultdict(list)
    for publication in result.publications:
        if publication.counts:
            by_snapshot[publication.snapshot_id].append(publication.counts)
    for snapshot_id, own in by_snapshot.items():
        counts = RecordCounts.total(own)
        shared = f" of {len(own):,} plans" if len(own) > 1 else ""
        if result.lane in POSITION_DELETING:
            show.line(
                f"{result.lane}: snapshot {snapshot_id}{shared}: {counts.segments_in_place:,} segments stay; "
                f"{counts.records_out:,} of {counts.records_in:,} records are visible as before "
                f"({counts.superseded:,} superseded, {counts.deleted:,} hidden before)"
            )
            continue
        deleted = f"; {counts.deleted:,} that others had deleted left behind" if counts.deleted else ""
        show.line(
            f"{result.lane}: snapshot {snapshot_id}{shared}: {counts.segments_in:,} segments with "
            f"{counts.records_in:,} records became {counts.segments_out:,} with {counts.records_out:,} "
            f"({counts.superseded:,} superseded, {counts.tombstones_removed:,} tombstones removed, "
            f"{counts.expired:,} expired, {counts.quarantined:,} quarantined, {counts.erased:,} erased{deleted})"
        )
    steps = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in result.seconds.items())
    waiting = f"; {len(result.postponed)} more wait for the next run's budget" if result.postponed else ""
    show.line(f"{result.lane}: {len(result.publications)} of {len(result.plans)} plans published; {steps}{waiting}")


def _as_dict(result: LaneRun) -> dict[str, Any]:
    return {
        "lane": result.lane.value,
        "plans": [plan.title for plan in result.plans],
        "postponed": [str(one) for one in result.postponed],
        "publications": [
            publication.__dict__ | {"counts": publication.counts and publication.counts.model_dump()}
            for publication in result.publications
        ],
        "failures": {title: str(error) for title, error in result.failures.items()},
        "seconds": result.seconds,
    }
