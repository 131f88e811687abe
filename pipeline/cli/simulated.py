"""Subcommand ``simulate``: a policy on synthetic arrivals, compared with Kafka's and WarpStream's rules."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline.cli import show
from pipeline.cli.options import AsJson, pairs
from pipeline.clock import now_ms
from pipeline.lake import Lake
from pipeline.policy.policies import PREFIX, TOPIC_PREFIX
from pipeline.sense import Lane, sense_table
from pipeline.simulate import Keys, Simulated, Workload, contenders, observed, plot
from pipeline.simulate import simulate as walk
from pipeline.simulate.arrivals import HOUR_MS
from pipeline.simulate.plot import check
from pipeline.simulate.simulate import FIRN, PEERS

DEFAULT = Workload()


def _option(name: str, text: str, default: object) -> Any:
    return typer.Option(f"--{name}", help=f"{text} [default: {default}]", show_default=False)


def simulate(
    rate: Annotated[
        float | None, _option("rate", "Records per second, all topic partitions together.", DEFAULT.rate)
    ] = None,
    hours: Annotated[float, typer.Option("--hours", help="Hours to simulate, on a virtual clock.")] = DEFAULT.hours,
    partitions: Annotated[int | None, _option("partitions", "Topic partitions, all alike.", DEFAULT.partitions)] = None,
    sample: Annotated[
        int, typer.Option("--sample", help="Simulate only this many of them and scale the figures to all.")
    ] = DEFAULT.sample,
    records_per_segment: Annotated[
        int | None, _option("records-per-segment", "Records of a landed segment.", DEFAULT.records_per_segment)
    ] = None,
    record_bytes: Annotated[
        int | None, _option("record-bytes", "File bytes of a record with a value.", DEFAULT.record_bytes)
    ] = None,
    tombstone_bytes: Annotated[
        int, typer.Option("--tombstone-bytes", help="File bytes of a tombstone.")
    ] = DEFAULT.tombstone_bytes,
    distribution: Annotated[
        Keys,
        typer.Option("--distribution", help="uniform; zipf; append: mostly new keys, updates to recent ones."),
    ] = DEFAULT.distribution,
    keys: Annotated[int | None, _option("keys", "Distinct keys per topic partition.", DEFAULT.keys)] = None,
    zipf_exponent: Annotated[
        float, typer.Option("--zipf-exponent", help="zipf: skew of the keys; 0: none.")
    ] = DEFAULT.zipf_exponent,
    update_ratio: Annotated[
        float, typer.Option("--update-ratio", help="append: share of records that update a key seen before.")
    ] = DEFAULT.update_ratio,
    delete_ratio: Annotated[
        float, typer.Option("--delete-ratio", help="Share of records that are tombstones.")
    ] = DEFAULT.delete_ratio,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the random records.")] = DEFAULT.seed,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", help="Interval between runs of the planner.")
    ] = 60.0,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy", metavar="NAME=VALUE", help="A property of Firn, for example merge.segments=16. Repeatable."
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option("--table", help="Use the policy of this table, and its arrivals unless options override them."),
    ] = None,
    rules: Annotated[
        list[str] | None, typer.Option("--rules", help=f"Only these of {FIRN}, {', '.join(PEERS)}; repeatable.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Plot the results to a .png or .svg file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate the planner on synthetic arrivals: write and space amplification, segments, lag, jobs. No Spark."""
    if picture:
        check(picture)
    properties, seen = _of_table(table) if table else ({}, {})
    given = {
        "rate": rate,
        "partitions": partitions,
        "records_per_segment": records_per_segment,
        "record_bytes": record_bytes,
        "keys": keys,
    }
    workload = Workload(
        hours=hours,
        sample=sample,
        tombstone_bytes=tombstone_bytes,
        distribution=distribution,
        zipf_exponent=zipf_exponent,
        update_ratio=update_ratio,
        delete_ratio=delete_ratio,
        seed=seed,
        **{**seen, **{name: value for name, value in given.items() if value is not None}},
    )
    chosen = {name.removeprefix(PREFIX): value for name, value in pairs(policy, "--policy").items()}
    sides = contenders({**properties, **chosen}, tuple(rules or (FIRN, *PEERS)))
    results = walk(workload, sides, round(every * 1000))
    if picture:
        plot(results, picture)
    if as_json:
        show.as_json({"workload": workload.as_dict(), "results": [result.as_dict() for result in results]})
        return
    _show(workload, results)
    if picture:
        show.line(f"plot: {picture}")


def _of_table(name: str) -> tuple[dict[str, str], dict[str, Any]]:
    """The properties of a table without their prefix, and the arrivals derived from its segments."""
    lake = Lake.load()
    properties = {
        key.removeprefix(PREFIX): value
        for key, value in lake.table(name).properties.items()
        if key.startswith(PREFIX) and not key.startswith(TOPIC_PREFIX)
    }
    _, states = sense_table(lake, name, now_ms(), look_at_transactions=False)
    return properties, dict(observed(states))


def _show(workload: Workload, results: Sequence[Simulated]) -> None:
    walked = f"{workload.simulated:,} of {workload.partitions:,}"
    show.line(
        f"{workload.rate:,g} records of {workload.record_bytes:,} bytes per second for {workload.hours:g} h, in "
        f"segments of {workload.records_per_segment:,}, keys {workload.distribution}, into {workload.partitions:,} "
        f"topic partitions (simulated: {walked}), seed {workload.seed}"
    )
    show.table(
        "amplification and lag",
        ("rules", "write", "space", "most space", "segments", "most segments", "landed", "lag, h", "longest lag, h"),
        [
            (
                result.contender.name,
                result.write_amplification,
                result.space_amplification,
                result.most_space,
                round(float(result.segments.sum(axis=0).mean())),
                round(float(result.segments.sum(axis=0).max())),
                round(float(result.segments[0].mean())),
                float(result.lag_ms.mean()) / HOUR_MS,
                result.books.longest_lag_ms / HOUR_MS,
            )
            for result in results
        ],
    )
    if any(result.contender.policy.masks for result in results):
        show.table(
            "what readers pay",
            ("rules", "delete files", "most delete files", "thrown away per record", "seen again per key"),
            [
                (
                    result.contender.name,
                    round(float(result.delete_files.mean()), 1),
                    round(float(result.delete_files.max())),
                    float(result.thrown_away.mean()),
                    float(result.seen_again.mean()),
                )
                for result in results
            ],
        )
    lanes = [lane for lane in Lane if any(result.plans_per_hour[lane] for result in results)]
    show.table(
        "plans and jobs per hour",
        ("rules", *(lane.value for lane in lanes), "jobs"),
        [
            (result.contender.name, *(result.plans_per_hour[lane] for lane in lanes), result.jobs_per_hour)
            for result in results
        ],
    )
