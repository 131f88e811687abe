"""Subcommand ``plan``: the plans of one lane, or those of all lanes in a run."""

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from firnlake.cli import show
from firnlake.cli.options import (
    AsJson,
    Force,
    FromOffset,
    FromTime,
    Instead,
    Limit,
    Now,
    OneLane,
    Partitions,
    TableName,
    Topics,
    UntilOffset,
    UntilTime,
    asked,
    at,
)
from firnlake.cli.show import Size
from firnlake.iceberg.catalog import Lake
from firnlake.job.lane import Lane
from firnlake.plan.lane_plans import LanePlans
from firnlake.plan.make import check_clock, plan_lanes, plan_work
from firnlake.plan.read_states import Scope
from firnlake.table.state import ScopeBounds


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
    write: Annotated[Path | None, typer.Option("--write", help="Also write each plan to FOLDER/<id>.json.")] = None,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """Print the plans of a run, or of one lane: their segments, bytes and reason. Change nothing."""
    scope = asked(topic, partition, ScopeBounds(from_offset, until_offset, from_time, until_time), properties)
    lake, now_ms = Lake.load(), at(now)
    if write:
        check_clock(table, now_ms)
    work = planned(lake, table, lane, now_ms, force, scope)
    plans = [one for own in work.values() for one in own.plans]
    written = [one.write(write) for one in plans] if write else []
    if as_json:
        tell_left(table, work)
        show.as_json(plans)
    else:
        show_plans(table, work, limit)
        if sum(bool(own.plans) for own in work.values()) > 1:
            show.line(f"{table}: in a run, each lane plans after the lanes before it")
        for path in written:
            show.line(str(path))


def planned(
    lake: Lake, table: str, lane: Lane | None, now_ms: int, force: bool, scope: Scope
) -> Mapping[Lane, LanePlans]:
    """The plans of ``lane``; without one, those of all lanes, on the table as it is now."""
    if lane is None:
        return plan_lanes(lake, table, now_ms, force, scope)
    return {lane: plan_work(lake, table, lane, now_ms, force, scope)}


def show_plans(table: str, work: Mapping[Lane, LanePlans], limit: int) -> None:
    """Print at most ``limit`` of the plans, and on standard error what is due but left out."""
    tell_left(table, work)
    plans = [one for own in work.values() for one in own.plans]
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


def tell_left(table: str, work: Mapping[Lane, LanePlans]) -> None:
    """Print on standard error, once each, the due plans that are left out and the segments too large for any plan."""
    for text in dict.fromkeys(chain.from_iterable((*own.left(), *own.oversized()) for own in work.values())):
        show.error(f"{table}: {text}")
