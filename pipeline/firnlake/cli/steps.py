"""Subcommands that run one step each: compact, validate, verify, publish, and the maintenance of stages."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from firnlake import clock
from firnlake.cli import show
from firnlake.cli.options import (
    AsJson,
    EngineName,
    Limit,
    StageNames,
    TableName,
    engines,
)
from firnlake.errors import FirnError, GoneError, NotFoundError, UnavailableError
from firnlake.iceberg.catalog import Lake
from firnlake.job.failures import retry as retry_failed
from firnlake.job.garbage import discard as discard_stage
from firnlake.job.plan import DROPPING, STAGED, Plan, stage_parts
from firnlake.job.stage import Stage, plans_in, stages_of
from firnlake.publish.publish import PublishResult, publish_stages, retain_plans
from firnlake.table.topic_partition import TopicPartition
from firnlake.validate.retention import refused_drops
from firnlake_expectations.wording import count

if TYPE_CHECKING:
    from firnlake.validate.validate import Verified


def compact(stages: StageNames, engine: EngineName = None, as_json: AsJson = False) -> None:
    """Run the plans of stages and write the results there, where readers of the table do not see them."""
    from firnlake.compact.compact import compact as run_plans

    lake = Lake.load()
    jobs = [[plan.of_lane(*STAGED) for plan in plans_in(lake, name)] for name in stages]
    with engines(engine, "firn compact", as_json) as started:
        on = started.of(sum(plan.bytes for plans in jobs for plan in plans))
        outcomes = [outcome for plans in jobs for outcome in run_plans(lake, plans, on)]
    if as_json:
        show.as_json(
            [{"plan": one.plan.id, "stage": one.stage, "counts": one.counts, "error": one.error} for one in outcomes]
        )
    else:
        for one in outcomes:
            if one.counts:
                records = f"{count(one.counts.records_in, 'record')} in, {one.counts.records_out:,} out"
                show.line(f"{one.stage}: {one.plan.title}: {records}")
    show.end([one.error for one in outcomes if one.error])


def validate(stages: StageNames, engine: EngineName = None, as_json: AsJson = False) -> None:
    """Validate stages with Great Expectations and store each verdict with its stage."""
    from firnlake.validate.validate import validate as judge_stages

    lake = Lake.load()
    staged = _staged(lake, stages)
    with engines(engine, "firn validate", as_json) as started:
        size = _bytes_of(lake, staged) if started.choice == "auto" else 0
        judged = judge_stages(lake, staged, started.of(size))
    if as_json:
        show.as_json(judged)
    else:
        for result in judged:
            if result.verdict:
                show.line(f"{result.stage}: {'passed' if result.passed else 'FAILED'}: {result.title}")
                for finding in result.verdict.failures:
                    show.line(f"  {finding.name}: {finding.sentence} {finding.observed}")
    show.end([result.error or f"stage {result.stage} failed validation" for result in judged if not result.passed])


SnapshotId = Annotated[
    int | None,
    typer.Option("--snapshot", help="Snapshot id of the commit. Default: Firn's newest commit that has a result."),
]


def verify(table: TableName, snapshot: SnapshotId = None, engine: EngineName = None, as_json: AsJson = False) -> None:
    """Compare the records that a commit removed with those that it added. Exit code 1 if a promise is broken."""
    from firnlake.validate.committed import Committed
    from firnlake.validate.validate import judge

    lake = Lake.load()
    # Before Spark starts, so that a refusal does not wait for Spark.
    commit = Committed.find(lake, table, snapshot)
    with engines(engine, f"firn verify {table}", as_json) as started:
        verified = judge(commit, started.of(0))
    if as_json:
        show.as_json([_document(one) for one in verified])
    else:
        for one in verified:
            _show_verified(one)
    if not all(one.passed for one in verified):
        raise typer.Exit(1)


def _show_verified(one: "Verified") -> None:
    claim = one.claim
    state = "every promise is kept" if one.passed else "PROMISES ARE BROKEN"
    show.line(
        f"snapshot {one.snapshot_id}, {claim.topic}-{claim.partition} {claim.lane} (plan {claim.plan_id}): {state}"
    )
    for row in one.rows:
        # Under the heading of a page, "0 of 3 keys." is clear; in a line of its own, it would seem to be kept for none.
        observed = f"broken by {row.observed}" if row.observed.startswith("0 of ") else row.observed
        show.line(f"  {'broken' if row.broken else 'kept  '}  {row.promise.name} ({row.promise.number}): {observed}")
        for sample in row.samples:
            show.line(
                f"          offset {sample.offset}, key {sample.key}: {sample.found}; expected: {sample.expected}"
            )


def _document(one: "Verified") -> dict[str, object]:
    return {
        "snapshot": one.snapshot_id,
        "plan": one.claim.plan_id,
        "topic": one.claim.topic,
        "partition": one.claim.partition,
        "lane": one.claim.lane,
        "passed": one.passed,
        "promises": [
            {
                "name": row.promise.name,
                "contract": row.promise.number,
                "promise": row.promise.sentence,
                "checked": row.checked,
                "broken": row.broken,
                "observed": row.observed,
                "samples": row.samples,
            }
            for row in one.rows
        ],
    }


def publish(stages: StageNames, as_json: AsJson = False) -> None:
    """Publish validated stages, each with one atomic commit. Starts no JVM."""
    lake = Lake.load()
    staged = _staged(lake, stages)
    names = {name: [plan.id for plan in own] or [name] for name, own in staged.items()}
    _show(publish_stages(lake, names, [*chain.from_iterable(staged.values())]), as_json)


def retain(stages: StageNames, as_json: AsJson = False) -> None:
    """Drop the segments of stages of lane `retain` with one atomic commit per table. Starts no JVM."""
    lake = Lake.load()
    jobs = {name: [plan.of_lane(*DROPPING) for plan in plans_in(lake, name)] for name in stages}
    done = retain_plans(lake, [*chain.from_iterable(jobs.values())], refused_drops)
    published = {one.plan_id for one in done.publications}
    for name, plans in jobs.items():
        if published.issuperset(plan.id for plan in plans):
            discard_stage(lake, name)
    _show(done, as_json)


def _show(done: PublishResult, as_json: bool) -> None:
    """Print the published plans, then the failures of the others."""
    if as_json:
        show.as_json(done.publications)
    else:
        for publication in done.publications:
            word = "was already published as" if publication.repeated else "published as"
            show.line(f"plan {publication.plan_id} {word} snapshot {publication.snapshot_id} of {publication.table}")
    show.end(list(done.failures.values()))


def stages(table: TableName, limit: Limit = 100, as_json: AsJson = False) -> None:
    """List the stages of a table with their states."""
    lake = Lake.load()
    lake.table(table)
    loaded, unreadable = _loaded(lake, stages_of(lake, table))
    if as_json:
        show.as_json([{"stage": one.identifier, "state": one.state, "plan": one.title} for one in loaded])
    else:
        show.table(
            f"{table}: stages",
            ("stage", "state", "plan"),
            [(item.identifier, item.state, item.title) for item in loaded[:limit]],
        )
        show.more(table, len(loaded), limit, "stage")
    show.end(unreadable)


def _loaded(lake: Lake, names: Iterable[str]) -> tuple[list[Stage], list[FirnError]]:
    """The stages that can be read, and the errors of the others."""
    loaded, unreadable = [], []
    for name in names:
        try:
            loaded.append(Stage.load(lake, name))
        except FirnError as error:
            unreadable.append(error)
    return loaded, unreadable


def discard(stages: StageNames) -> None:
    """Delete stages and their files, except files that a snapshot refers to."""
    lake = Lake.load()
    failures: list[FirnError] = []
    for identifier in stages:
        try:
            table, _ = stage_parts(identifier)
            if identifier not in stages_of(lake, table):
                raise GoneError(
                    identifier, f"there is no stage {identifier}; allowed: a stage that `firn stages {table}` lists"
                )
            with lake.answering():
                stuck = [one for one in discard_stage(lake, identifier) if one.exit_code]
        except FirnError as error:
            failures.append(error)
        else:
            show.line(f"discarded {identifier}")
            failures += (UnavailableError(f"{one.name}: {one.reason}; it goes after three days") for one in stuck)
    show.end(failures)


def retry(
    table: TableName,
    topic_partition: Annotated[
        TopicPartition | None,
        typer.Argument(
            parser=TopicPartition.parse, metavar="[TOPIC-PARTITION]", help="Only this topic partition. Default: all."
        ),
    ] = None,
) -> None:
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
    from firnlake.inspect import status
    from firnlake.inspect.gather import is_table_of_records, write_snapshot
    from firnlake.validate.validate import build_reports

    lake = Lake.load()
    for one in dict.fromkeys([*lake.all_tables(), *status.tables(lake.home)]):
        try:
            # A table that was released or dropped keeps the page of what was last seen of it.
            if is_table_of_records(lake, one):
                write_snapshot(lake, one, clock.now_ms())
        except NotFoundError:
            continue
        except FirnError as error:
            show.error(f"the page of {one} shows what was seen before: {error}")
    show.line(f"data-quality report: {build_reports(lake)}")
    if data_docs:
        from firnlake_expectations.data_docs import build_data_docs

        show.line(f"Great Expectations' Data Docs: {build_data_docs(lake.reports_folder, data_docs)}")


def _staged(lake: Lake, names: Iterable[str]) -> dict[str, Sequence[Plan]]:
    """The plans of the stages ``names``; none of a stage that can't be read, whose error the step reports."""
    staged: dict[str, Sequence[Plan]] = {}
    for name in names:
        staged[name] = ()
        with suppress(FirnError):
            staged[name] = plans_in(lake, name)
    return staged


def _bytes_of(lake: Lake, names: Iterable[str]) -> int:
    """Bytes that the plans of these stages read. Unreadable stages add nothing: validation reports their errors."""
    loaded, _ = _loaded(lake, names)
    return sum(plan.read_bytes for stage in loaded for plan in stage.plans)
