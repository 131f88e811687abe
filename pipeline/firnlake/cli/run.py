"""Subcommands ``plan`` and ``run``: the plans of one lane or of all, and all steps in one process."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Annotated, Any

import typer

from firnlake.cli import show
from firnlake.cli.options import (
    AsJson,
    EngineName,
    Limit,
    Now,
    TableName,
    at,
    engines,
    pairs,
    time_option,
    topic_partition_option,
)
from firnlake.cli.show import Size
from firnlake.errors import ConflictError, FirnError, UnavailableError
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.gather import write_snapshot
from firnlake.job.lane import Lane
from firnlake.job.stage import open_stages
from firnlake.plan.lane_plans import LanePlans
from firnlake.plan.make import check_clock, plan_lanes, plan_work
from firnlake.plan.read_states import Scope
from firnlake.run import LaneRun
from firnlake.run import run as run_lanes
from firnlake.table.history import Counts
from firnlake.table.state import ScopeBounds
from firnlake.table.topic_partition import TopicPartition
from firnlake_expectations.wording import count, fates

OneLane = Annotated[
    Lane | None,
    typer.Option("--lane", metavar="LANE", help=f"Only this lane: {', '.join(Lane)}. Default: all, in this order."),
]
Force = Annotated[bool, typer.Option("--force", help="Plan even if no threshold is crossed.")]
Topics = Annotated[list[str] | None, typer.Option("--topic", help="Only this topic. Repeatable.")]
Partitions = Annotated[list[TopicPartition] | None, topic_partition_option("Only this topic partition. Repeatable.")]
FromOffset = Annotated[
    int | None,
    typer.Option("--from-offset", min=0, help="Only segments that start at this offset or later; not for lane full."),
]
UntilOffset = Annotated[
    int | None, typer.Option("--until-offset", min=0, help="Stop before the first segment that ends past this offset.")
]
FromTime = Annotated[
    int | None, time_option("--from-time", "Only segments without older timestamps (not for lane full).")
]
UntilTime = Annotated[int | None, time_option("--until-time", "Stop before the first segment with a newer timestamp.")]
Instead = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="K=V",
        help="Overrides a threshold or budget of the table, for example firn.merge.segments=4. Repeatable.",
    ),
]


def plan(
    table: TableName,
    lane: OneLane = None,
    force: Force = False,
    topic: Topics = None,
    partition: Partitions = None,
    from_offset: FromOffset = None,
    until_offset: UntilOffset = None,
    from_time: FromTime = None,
    until_time: UntilTime = None,
    properties: Instead = None,
    now: Now = None,
    write: Annotated[
        bool,
        typer.Option("--write", help="Also open the stages of the plans, and print their names."),
    ] = False,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """Print the plans of a run, or of one lane: their segments, bytes and reason. Without --write, change nothing."""
    bounds = ScopeBounds(from_offset, until_offset, from_time, until_time)
    scope = Scope(tuple(topic or ()), tuple(partition or ()), bounds, pairs(properties))
    lake, now_ms = Lake.load(), at(now)
    if write:
        check_clock(table, now_ms)
    work = _planned(lake, table, lane, now_ms, force, scope)
    plans = [one for own in work.values() for one in own.plans]
    stages = open_stages(lake, plans) if write else []
    _show_plans(table, work, limit, as_json)
    for stage in () if as_json else stages:
        show.line(stage)


def run(
    table: TableName,
    lane: OneLane = None,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Repeat until nothing is due.")] = False,
    force: Force = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what the run would do now, as `firn plan`; change nothing.")
    ] = False,
    topic: Topics = None,
    partition: Partitions = None,
    from_offset: FromOffset = None,
    until_offset: UntilOffset = None,
    from_time: FromTime = None,
    until_time: UntilTime = None,
    properties: Instead = None,
    now: Now = None,
    engine: EngineName = None,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """Sense, plan, compact, validate and publish, in one process. Spark starts only if a lane needs it."""
    lake = Lake.load()
    lanes = (lane,) if lane else tuple(Lane)
    bounds = ScopeBounds(from_offset, until_offset, from_time, until_time)
    scope = Scope(tuple(topic or ()), tuple(partition or ()), bounds, pairs(properties))
    if dry_run:
        _show_plans(table, _planned(lake, table, lane, at(now), force, scope), limit, as_json)
        return
    done = []
    with engines(engine, f"firn run {table}", as_json) as started:
        for result in run_lanes(lake, table, at(now), started.of, lanes, force, until_idle, scope):
            done.append(result)
            if result.plans and not as_json:
                _show(result)
    status = write_snapshot(lake, table, at(now))
    if any(result.plans for result in done):
        from firnlake.validate.validate import build_reports

        index = build_reports(lake)
        if not as_json:
            show.line(f"data-quality report: {index}")
    elif not as_json:
        ratio = status.max_dirty_ratio
        dirty = f"; dirty ratio up to {ratio:.3f}: `firn status {table}` tells more, and --force runs anyway"
        held = "; what is dirty waits for a person"
        show.line(f"{table}: nothing due{held if status.matters else dirty if ratio else ''}")
    if as_json:
        show.as_json([_as_dict(result) for result in done])
    failed = {plan.title: plan for result in done for plan in result.plans if plan.title in result.failures}
    # The reason why a failed plan was due would stand before the reason why it failed.
    names = {title: f"{plan.topic_partition} {plan.lane}" for title, plan in failed.items()}
    alike: dict[str, list[tuple[str, FirnError | str]]] = defaultdict(list)
    for title, error in (one for result in done for one in result.failures.items()):
        alike[str(error)].append((names.get(title, title), error))
    named = [_named([name for name, _ in own], own[0][1]) for own in alike.values()]
    waiting = status.waiting({str(plan.topic_partition) for plan in failed.values()})
    show.end([*named, *([waiting] if waiting else [])])


def _planned(
    lake: Lake, table: str, lane: Lane | None, now_ms: int, force: bool, scope: Scope
) -> Mapping[Lane, LanePlans]:
    """The plans of ``lane``; without one, those of all lanes, on the table as it is now."""
    if lane is None:
        return plan_lanes(lake, table, now_ms, force, scope)
    return {lane: plan_work(lake, table, lane, now_ms, force, scope)}


def _show_plans(table: str, work: Mapping[Lane, LanePlans], limit: int, as_json: bool) -> None:
    """Print at most ``limit`` of the plans, and on standard error what is due but left out."""
    for text in dict.fromkeys(chain.from_iterable((*own.left(), *own.oversized()) for own in work.values())):
        show.error(f"{table}: {text}")
    plans = [one for own in work.values() for one in own.plans]
    if as_json:
        show.as_json(plans)
        return
    if not plans:
        show.line(f"{table}: nothing due" + (f" in lane {next(iter(work))}" if len(work) == 1 else ""))
        return
    show.table(
        f"{table}: plans",
        ("topic partition", "lane", "segments", "records", "bytes", "why"),
        [
            (str(one.topic_partition), str(one.lane), len(one.inputs), one.records, Size(one.bytes), one.reason)
            for one in plans[:limit]
        ],
    )
    show.more(table, len(plans), limit, "plan")
    if len({one.lane for one in plans}) > 1:
        show.line(f"{table}: in a run, each lane plans after the lanes before it")


def _named(plans: Sequence[str], error: FirnError | str) -> FirnError | str:
    """The error with the name of the first of its ``plans``, and with the exit code of an outage if it is one."""
    if isinstance(error, ConflictError):
        return error
    name = plans[0] if len(plans) == 1 else f"{plans[0]} and {count(len(plans) - 1, 'more plan')}"
    return UnavailableError(f"{name}: {error}") if isinstance(error, UnavailableError) else f"{name}: {error}"


def _show(result: LaneRun) -> None:
    by_snapshot: dict[int, list[Counts]] = defaultdict(list)
    for publication in result.publications:
        if publication.counts:
            by_snapshot[publication.snapshot_id].append(publication.counts)
    for snapshot_id, own in by_snapshot.items():
        counts = Counts.total(own)
        records_in = count(counts.records_in, "record")
        if result.lane.traits.writes == "deletes":
            done = f"{count(counts.segments_in_place, 'segment')} unchanged, {records_in} visible as before"
        else:
            segments_in, segments_out = count(counts.segments_in, "segment"), count(counts.segments_out, "segment")
            records_out = count(counts.records_out, "record")
            done = f"{segments_in} with {records_in} became {segments_out} with {records_out}"
        shared = f" of {len(own):,} plans" if len(own) > 1 else ""
        show.message(f"{result.lane}: {done}; {_fates(counts)}; snapshot {snapshot_id}{shared}")
    steps = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in result.seconds.items())
    waiting = f"; {count(len(result.postponed), 'more plan')} left for the next run" if result.postponed else ""
    published, plans = len(result.publications), len(result.plans)
    told = count(plans, "plan") if published == plans else f"{published:,} of {plans:,} plans"
    show.message(f"{result.lane}: {told} published; {steps}{waiting}")


def _fates(counts: Counts) -> str:
    """What became of the records that are visible no longer, by number."""
    others = (
        f"{count(counts.restored, 'removed tombstone')} restored" if counts.restored else "",
        f"{counts.deleted:,} already hidden by row-level deletes" if counts.deleted else "",
    )
    return ", ".join(filter(None, (fates(counts.model_dump()), *others))) or "every record is kept"


def _as_dict(result: LaneRun) -> dict[str, Any]:
    return {
        "lane": result.lane,
        "plans": [plan.title for plan in result.plans],
        "postponed": [str(one) for one in result.postponed],
        "publications": result.publications,
        "failures": result.failures,
        "seconds": result.seconds,
    }
