"""Subcommands that do the work, and judge it: `plan`, `run`, `verify`, `retry` and `report`."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firnlake import clock
from firnlake.cli import show
from firnlake.cli.options import (
    AsJson,
    EngineName,
    Limit,
    Now,
    OneTopicPartition,
    TableName,
    at,
    engines,
    pairs,
    topic_partition_option,
)
from firnlake.cli.show import Size
from firnlake.errors import ConflictError, FirnError, UnavailableError
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.status import write_snapshot
from firnlake.job.outcomes import retry as retry_failed
from firnlake.lanes import Lane
from firnlake.plan.make import LaneRun, plan_lanes
from firnlake.plan.read_states import Scope
from firnlake.run import run as run_lanes
from firnlake.table.columns import is_table_of_records
from firnlake.table.history import Counts
from firnlake.table.segment import TopicPartition
from firnlake_expectations.data_quality import build_pages
from firnlake_expectations.wording import count, fates

if TYPE_CHECKING:
    from firnlake_expectations.case import Verdict

OneLane = Annotated[
    Lane | None,
    typer.Option("--lane", metavar="LANE", help=f"Only this lane: {', '.join(Lane)}. Default: all, in this order."),
]
Force = Annotated[bool, typer.Option("--force", help="Plan even if no threshold is crossed.")]
Topics = Annotated[list[str] | None, typer.Option("--topic", help="Only this topic. Repeatable.")]
Partitions = Annotated[list[TopicPartition] | None, topic_partition_option("Only this topic partition. Repeatable.")]
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
    properties: Instead = None,
    now: Now = None,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """Print the plans of a run, or of one lane: their segments, bytes and reason. Change nothing."""
    scope = Scope(tuple(topic or ()), tuple(partition or ()), pairs(properties))
    work = plan_lanes(Lake.load(), table, at(now), force, scope, (lane,) if lane else tuple(Lane))
    _show_plans(table, [*work], limit, as_json)


def run(
    table: TableName,
    lane: OneLane = None,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Repeat until nothing is due.")] = False,
    force: Force = False,
    topic: Topics = None,
    partition: Partitions = None,
    properties: Instead = None,
    now: Now = None,
    engine: EngineName = None,
    as_json: AsJson = False,
) -> None:
    """Sense, plan, compact, validate and publish, in one process. Spark starts only if a lane needs it."""
    lake = Lake.load()
    lanes = (lane,) if lane else tuple(Lane)
    scope = Scope(tuple(topic or ()), tuple(partition or ()), pairs(properties))
    done = []
    with engines(engine, f"firn run {table}", as_json) as started:
        for result in run_lanes(lake, table, at(now), started.of, lanes, force, until_idle, scope):
            done.append(result)
            if result.plans and not as_json:
                _show_lane(result)
    status = write_snapshot(lake, table, at(now))
    if any(result.plans for result in done):
        index = build_pages(lake.reports_folder)
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
    alike: dict[str, list[tuple[str, FirnError]]] = defaultdict(list)
    for title, error in (one for result in done for one in result.failures.items()):
        alike[str(error)].append((names.get(title, title), error))
    named = [_named([name for name, _ in own], own[0][1]) for own in alike.values()]
    waiting = status.waiting({str(plan.topic_partition) for plan in failed.values()})
    show.end([*named, *([waiting] if waiting else [])])


def _show_plans(table: str, work: Sequence[LaneRun], limit: int, as_json: bool) -> None:
    """Print at most ``limit`` of the plans, and on standard error what is due but left out."""
    for text in dict.fromkeys(chain.from_iterable((*own.left(), *own.oversized) for own in work)):
        show.error(f"{table}: {text}")
    plans = [one for own in work for one in own.plans]
    if as_json:
        show.as_json(plans)
        return
    if not plans:
        show.line(f"{table}: nothing due" + (f" in lane {work[0].lane}" if len(work) == 1 else ""))
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


def _named(plans: Sequence[str], error: FirnError) -> FirnError | str:
    """The error with the name of the first of its ``plans``, and with the exit code of an outage if it is one."""
    if isinstance(error, ConflictError):
        return error
    name = plans[0] if len(plans) == 1 else f"{plans[0]} and {count(len(plans) - 1, 'more plan')}"
    return UnavailableError(f"{name}: {error}") if isinstance(error, UnavailableError) else f"{name}: {error}"


def _show_lane(result: LaneRun) -> None:
    by_snapshot: dict[int, list[Counts]] = defaultdict(list)
    for publication in result.publications:
        if publication.counts and publication.snapshot_id is not None:
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
        show.line(f"{result.lane}: {done}; {_fates(counts)}; snapshot {snapshot_id}{shared}")
    steps = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in result.seconds.items())
    waiting = f"; {count(len(result.postponed), 'more plan')} left for the next run" if result.postponed else ""
    published, plans = len(result.publications), len(result.plans)
    told = count(plans, "plan") if published == plans else f"{published:,} of {plans:,} plans"
    show.line(f"{result.lane}: {told} published; {steps}{waiting}")


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
        "postponed": result.postponed,
        "publications": result.publications,
        "failures": result.failures,
        "seconds": result.seconds,
    }


SnapshotId = Annotated[
    int | None,
    typer.Option("--snapshot", help="Snapshot id of the commit. Default: Firn's newest commit that has a result."),
]


def verify(table: TableName, snapshot: SnapshotId = None, engine: EngineName = None, as_json: AsJson = False) -> None:
    """Compare the records that a commit removed with those that it added. Exit code 1 if a promise is broken."""
    from firnlake.validate.basis import Committed
    from firnlake.validate.validate import judge

    lake = Lake.load()
    # Before Spark starts, so that a refusal does not wait for Spark.
    commit = Committed.find(lake, table, snapshot)
    with engines(engine, f"firn verify {table}", as_json) as started:
        verified = judge(commit, started.of(commit.bytes))
    if as_json:
        facts = {"snapshot": commit.snapshot.snapshot_id}
        show.as_json([facts | {"passed": one.passed, "verdict": one} for one in verified])
    else:
        for one in verified:
            _show_verified(commit.snapshot.snapshot_id, one)
    if not all(one.passed for one in verified):
        raise typer.Exit(1)


def _show_verified(snapshot_id: int, one: "Verdict") -> None:
    claim = one.claim
    state = "every promise is kept" if one.passed else "PROMISES ARE BROKEN"
    show.line(f"snapshot {snapshot_id}, {claim.topic}-{claim.partition} {claim.lane} (plan {claim.plan_id}): {state}")
    for found in one.expectations:
        # Under the heading of a page, "0 of 3 keys." is clear; in a line of its own, it would seem to be kept for none.
        observed = f"broken by {found.observed}" if found.observed.startswith("0 of ") else found.observed
        show.line(f"  {'kept  ' if found.passed else 'broken'}  {found.name} ({found.contract}): {observed}")
        for sample in found.samples:
            show.line(f"          offset {sample.offset}, key {sample.key}: {sample.found}")


def retry(table: TableName, topic_partition: OneTopicPartition = None) -> None:
    """Let the next run retry failed plans, even though their segments are unchanged."""
    retried = retry_failed(Lake.load(), table, topic_partition)
    for marker in retried:
        show.line(f"{marker.plan.topic_partition} {marker.plan.lane} will be retried; its plan {marker.failure}")
    if not retried:
        show.line(f"no failed plan of {topic_partition or table} is waiting")


DataDocs = Annotated[
    Path | None,
    typer.Option("--data-docs", metavar="DIR", help="Also build Great Expectations' Data Docs, in this folder."),
]


def report(data_docs: DataDocs = None) -> None:
    """Build the data-quality pages of all tables as they are now, and print the path of the front page."""
    lake = Lake.load()
    for one in lake.all_tables():
        try:
            # A table that was released or dropped keeps the page of what was last seen of it.
            if is_table_of_records(lake.table(one)):
                write_snapshot(lake, one, clock.now_ms())
        except FirnError as error:
            show.error(f"the page of {one} shows what was seen before: {error}")
    show.line(f"data-quality report: {build_pages(lake.reports_folder)}")
    if data_docs:
        from firnlake_expectations.checkpoint import build_data_docs

        show.line(f"Great Expectations' Data Docs: {build_data_docs(lake.reports_folder, data_docs)}")
