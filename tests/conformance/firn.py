"""The Firn side: the workloads of a group land as topics of one table and are cleaned by the steps that users run."""

import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from firnlake.clock import to_ms
from firnlake.door import MaintainedTable, OpenCatalog
from firnlake.engine.engine import Engine
from firnlake.iceberg.branches import QUARANTINE, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.lanes import Lane
from firnlake.table.records import arrow_schema
from tests.conformance.workloads import Entry, Group, Mode

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
    clocks = [step.now for step in group.workloads[0].steps]
    name = f"conformance.{group.name}"
    OpenCatalog(lake).table(name).create(_properties(group), transactions=group.mode is Mode.TRANSACTIONS)
    found: list[list[Cleaned]] = [[] for _ in group.workloads]
    for number, now in enumerate(clocks):
        table = OpenCatalog(lake, lambda now=now: now, engine).table(name)  # type: ignore[misc]  # of this turn
        _land(table, group, number)
        lanes = _run(table, group.mode, settling=number >= len(clocks) - group.settling)
        seen, quarantined = _records(table), _quarantined(table)
        for own, topic in zip(found, (workload.id for workload in group.workloads), strict=True):
            own.append(Cleaned(now, tuple(lanes[topic]), seen[topic], frozenset(quarantined[topic])))
    return found


def _properties(group: Group) -> dict[str, str]:
    """Each topic's configs as its own properties of the shared table."""
    buffer = group.workloads[0].dedupe_buffer_bytes
    properties = {"firn.cleaner.dedupe.buffer.size": str(buffer), "firn.min.dirty.bytes": "0"}
    if group.mode is not Mode.LEVELS:
        properties["firn.profile"] = "kafka"
    for workload in group.workloads:
        configs = dict(workload.configs) | {"active.segments": "1" if workload.active else "0"}
        if group.mode is Mode.LEVELS:
            configs |= _LOW_THRESHOLDS
        properties |= {f"firn.topic.{workload.id}.{name}": value for name, value in configs.items()}
    return properties


def _land(table: MaintainedTable, group: Group, number: int) -> None:
    """Land a step: the n-th segments of all topics are one file, and a file becomes a segment of each of its topics."""
    steps = [(workload.id, workload.steps[number].segments) for workload in group.workloads]
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for position in range(max(len(segments) for _, segments in steps)):
            nth = [(topic, segments[position]) for topic, segments in steps if position < len(segments)]
            rows = [_row(topic, entry) for topic, entries in nth for entry in entries]
            paths.append(Path(folder) / f"{position}.parquet")
            pq.write_table(pa.Table.from_pylist(rows, arrow_schema(group.mode is Mode.TRANSACTIONS)), paths[-1])
        if paths:
            table.land(*paths)


def _row(topic: str, entry: Entry) -> dict[str, Any]:
    return {
        "key": entry.key,
        "value": entry.value,
        "topic": topic,
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


def _run(table: MaintainedTable, mode: Mode, *, settling: bool) -> dict[str, list[Lane]]:
    """Let Firn do what ``mode`` says; the lanes that were published, per topic."""
    force = mode is Mode.FULL or (mode is Mode.LEVELS and settling)
    lanes = () if mode is Mode.LEVELS and not force else (Lane.FULL,)
    published: dict[str, list[Lane]] = defaultdict(list)
    for done in table.run(*lanes, force=force, until_idle=mode in (Mode.BUDGETS, Mode.LEVELS)):
        assert not done.failures, done.failures
        for plan in done.plans:
            published[plan.topic].append(done.lane)
    return published


def _records(table: MaintainedTable) -> dict[str, dict[int, Held]]:
    found: dict[str, dict[int, Held]] = defaultdict(dict)
    for row in table.opened.lake.table(table.name).scan().to_arrow().to_pylist():
        horizon, own = row["delete_horizon"], found[row["topic"]]
        assert row["offset"] not in own, f"{row['topic']}: offset {row['offset']} is seen twice"
        own[row["offset"]] = Held(row["key"], row["value"], to_ms(horizon) if horizon else None, row["level"] or 0)
    return found


def _quarantined(table: MaintainedTable) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    quarantine = on_branch(table.opened.lake.table(table.name), QUARANTINE)
    for row in quarantine.scan(selected_fields=("topic", "offset")).to_arrow().to_pylist():
        found[row["topic"]].append(row["offset"])
    return found
