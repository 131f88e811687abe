"""The Firn side: the workloads of a group land as topics of one table and are cleaned by the steps that users run."""

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from firnlake.clock import to_ms
from firnlake.engine.engine import Engine
from firnlake.iceberg.branches import QUARANTINE, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.land import land
from firnlake.job.lane import Lane
from firnlake.run import run
from firnlake.table import records
from tests.conformance.workloads import Entry, Group, Mode, Workload

_FIELDS = ("topic", "offset", "key", "value", "level", "delete_horizon")
_LOW_THRESHOLDS = {
    "merge.segments": "2",
    "clean.segments": "2",
    "tier.runs": "2",
    "min.cleanable.dirty.ratio": "0.8",
}


class Held(NamedTuple):
    """A record that a reader of the table sees, with the level it is at; the horizon in epoch milliseconds."""

    key: bytes | None
    value: bytes | None
    horizon: int | None
    level: int


class Cleaned(NamedTuple):
    """A topic after Firn was run at ``now``, with the lanes that were published for it then."""

    now: int
    lanes: tuple[Lane, ...]
    records: dict[int, Held]
    quarantined: frozenset[int]


def clean(lake: Lake, engine: Engine, group: Group) -> list[list[Cleaned]]:
    """Records that Firn leaves after each step of each workload. Raises AssertionError when a plan fails."""
    table = f"conformance.{group.name}"
    records.create(lake, table, _properties(group), transactions=group.mode is Mode.TRANSACTIONS)
    found: list[list[Cleaned]] = [[] for _ in group.workloads]
    steps = len(group.workloads[0].steps)
    for number in range(steps):
        _land(lake, table, group, number)
        now = group.workloads[0].steps[number].now
        lanes = _run(lake, engine, table, group.mode, now, settling=number >= steps - group.settling)
        seen = _records(lake, table, group)
        aside = _quarantined(lake, table)
        for own, workload in zip(found, group.workloads, strict=True):
            topic = workload.id
            own.append(Cleaned(now, tuple(lanes.get(topic, ())), seen[topic], frozenset(aside.get(topic, ()))))
    return found


def _properties(group: Group) -> dict[str, str]:
    """Each topic's configs as its own properties of the shared table."""
    buffer = group.workloads[0].dedupe_buffer_bytes
    properties = {"firn.cleaner.dedupe.buffer.size": str(buffer)}
    if group.mode is not Mode.LEVELS:
        properties["firn.profile"] = "kafka"
    for workload in group.workloads:
        configs = dict(workload.configs) | {"active.segments": "1" if workload.active else "0"}
        if group.mode is Mode.LEVELS:
            configs |= _LOW_THRESHOLDS
        properties |= {f"firn.topic.{workload.id}.{name}": value for name, value in configs.items()}
    return properties


def _run(lake: Lake, engine: Engine, table: str, mode: Mode, now: int, settling: bool) -> dict[str, list[Lane]]:
    """Let Firn do what ``mode`` says; the lanes that were published, per topic."""
    force = mode is Mode.FULL or (mode is Mode.LEVELS and settling)
    lanes = tuple(Lane) if mode is Mode.LEVELS and not force else (Lane.FULL,)
    published: dict[str, list[Lane]] = {}
    for done in run(lake, table, now, lambda _: engine, lanes, force, until_idle=mode in (Mode.BUDGETS, Mode.LEVELS)):
        assert not done.failures, done.failures
        for plan in done.plans:
            published.setdefault(plan.topic, []).append(done.lane)
    return published


def _land(lake: Lake, table: str, group: Group, number: int) -> None:
    """Land a step: the n-th segments of all topics are one file, and a file becomes a segment of each of its topics."""
    steps = [(workload, workload.steps[number].segments) for workload in group.workloads]
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for position in range(max(len(segments) for _, segments in steps)):
            nth = [(workload, segments[position]) for workload, segments in steps if position < len(segments)]
            rows = _rows(nth, group.mode is Mode.TRANSACTIONS)
            paths.append(Path(folder) / f"{position}.parquet")
            pq.write_table(rows, paths[-1])
        if paths:
            land(lake, table, paths)


def _rows(segments: Iterable[tuple[Workload, Iterable[Entry]]], transactions: bool) -> pa.Table:
    rows: list[dict[str, Any]] = [
        {
            "key": entry.key,
            "value": entry.value,
            "topic": workload.id,
            "partition": 0,
            "offset": entry.offset,
            "timestamp": entry.timestamp * 1000,
            "timestampType": 0,
            "headers": [],
            "is_control": entry.marker is not None,
            "is_transactional": entry.producer is not None,
            "producer_id": entry.producer,
            "producer_epoch": 0 if entry.producer is not None else None,
        }
        for workload, entries in segments
        for entry in entries
    ]
    return pa.Table.from_pylist(rows, schema=records.arrow_schema(transactions))


def _records(lake: Lake, table: str, group: Group) -> dict[str, dict[int, Held]]:
    found: dict[str, dict[int, Held]] = {workload.id: {} for workload in group.workloads}
    for row in lake.table(table).scan(selected_fields=_FIELDS).to_arrow().to_pylist():
        horizon = row["delete_horizon"]
        held = Held(row["key"], row["value"], to_ms(horizon) if horizon else None, row["level"] or 0)
        own = found[row["topic"]]
        assert row["offset"] not in own, f"{row['topic']}: offset {row['offset']} is seen twice"
        own[row["offset"]] = held
    return found


def _quarantined(lake: Lake, table: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, offset in _quarantine_rows(lake, table):
        found.setdefault(topic, []).append(offset)
    return found


def _quarantine_rows(lake: Lake, table: str) -> Iterator[tuple[str, int]]:
    quarantine = on_branch(lake.table(table), QUARANTINE)
    for row in quarantine.scan(selected_fields=("topic", "offset")).to_arrow().to_pylist():
        yield row["topic"], row["offset"]
