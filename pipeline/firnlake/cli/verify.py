"""Subcommand ``verify``: run the judge on any commit of Firn in a table's history."""

from typing import Annotated

import typer

from firnlake.cli import show
from firnlake.cli.options import AsJson, EngineName, TableName, engines
from firnlake.iceberg.catalog import Lake
from firnlake.validate.committed import Committed
from firnlake.validate.validate import Verified, judge

SnapshotId = Annotated[
    int | None,
    typer.Option("--snapshot", help="Snapshot id of the commit. Default: Firn's newest commit that has a result."),
]


def verify(table: TableName, snapshot: SnapshotId = None, engine: EngineName = None, as_json: AsJson = False) -> None:
    """Compare the records that a commit removed with those that it added. Exit code 1 if a promise is broken."""
    lake = Lake.load()
    # Before Spark starts, so that a refusal does not wait for Spark.
    commit = Committed.find(lake, table, snapshot)
    with engines(engine, f"firn verify {table}", as_json) as started:
        verified = judge(commit, started.of(0))
    if as_json:
        show.as_json([_told(one) for one in verified])
    else:
        for one in verified:
            _show(one)
    if not all(one.passed for one in verified):
        raise typer.Exit(1)


def _show(one: Verified) -> None:
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


def _told(one: Verified) -> dict[str, object]:
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
                "samples": [sample.to_dict() for sample in row.samples],
            }
            for row in one.rows
        ],
    }
