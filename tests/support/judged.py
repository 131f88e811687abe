"""Records of Kafka's columns as tests make them up, and what a judge says of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from firnlake_expectations.claim import Claim, Finding, JudgedColumns, Verdict
from firnlake_expectations.fingerprint import Fingerprint
from firnlake_expectations.judge import judge
from firnlake_expectations.tables import AFTER, BEFORE, IN_PLACE, Part
from firnlake_expectations.verdicts import verdicts
from firnlake_expectations.visible import Deletes, Listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from firnlake_expectations.wording import Shown

_MOMENT = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    {
        "key": pa.large_binary(),
        "value": pa.large_binary(),
        "topic": pa.large_string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": _MOMENT,
        "timestampType": pa.int32(),
        "headers": pa.large_list(pa.struct({"key": pa.large_string(), "value": pa.large_binary()})),
        "level": pa.int32(),
        "delete_horizon": _MOMENT,
    }
)
KAFKAS = JudgedColumns()
"""Each column under Kafka's own name."""
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
RETENTION = timedelta(hours=1)
PAST, LATER, STAMP = NOW - timedelta(minutes=1), NOW + timedelta(minutes=1), NOW + RETENTION

HEADERS: list[tuple[str, bytes | None]] = [("h", None)]


def verdict_document(claim: Claim, verdict: Verdict, validated: datetime) -> dict[str, object]:
    """The document that Firn stores of a verdict."""
    return {"validated": validated.isoformat(), "claim": claim.to_dict(), "verdict": verdict.to_dict()}


@dataclass(frozen=True)
class Record:
    """One record; its fields have the names of the columns."""

    offset: int
    key: bytes | None
    value: bytes | None = b"v"
    level: int | None = 1
    delete_horizon: datetime | None = None
    topic: str = "orders"
    partition: int = 3
    timestamp: datetime = NOW - timedelta(days=1)
    timestampType: int = 0  # noqa: N815  # Kafka's name
    headers: list[tuple[str, bytes | None]] | None = field(default_factory=lambda: list(HEADERS))


def stays(record: Record, horizon: datetime | None = None) -> Record:
    """As a cleaning writes it."""
    return replace(record, level=2, delete_horizon=horizon)


OLD_A, NEW_A = Record(0, b"a", b"1", level=None), Record(2, b"a", b"2")
B = Record(1, b"b")
FIRST_SEEN = Record(3, b"c", None)
OLD_D, DELETED_D = Record(4, b"d"), Record(5, b"d", None)
PAST_HORIZON = Record(6, b"e", None, level=2, delete_horizon=PAST)
BEFORE_HORIZON = Record(7, b"f", None, level=2, delete_horizon=LATER)
EMPTY_KEY = Record(8, b"", b"")
NO_KEY = Record(9, None)
STRANGERS_STAMP = Record(10, b"g", None, level=1, delete_horizon=PAST)
OLD_H, STAMPED_H = Record(11, b"h", level=1), Record(12, b"h", None, level=2, delete_horizon=PAST)
LOG_END = Record(20, b"z", None, level=2, delete_horizon=PAST)

INPUTS = [
    *(OLD_A, NEW_A, B, FIRST_SEEN, OLD_D, DELETED_D, PAST_HORIZON, BEFORE_HORIZON, EMPTY_KEY, NO_KEY),
    *(STRANGERS_STAMP, OLD_H, STAMPED_H, LOG_END),
]
OUTPUTS = [
    stays(B),
    stays(NEW_A),
    stays(FIRST_SEEN, STAMP),
    stays(DELETED_D, STAMP),
    replace(PAST_HORIZON, level=-2),  # removed, and kept beside the topic
    stays(BEFORE_HORIZON, LATER),
    stays(EMPTY_KEY),
    replace(NO_KEY, level=-1),
    stays(STRANGERS_STAMP, STAMP),
    stays(STAMPED_H, STAMP),  # an older record came late: un-stamped, and stamped again
    stays(LOG_END, PAST),
]
CLAIM = Claim(
    table="db.orders",
    lane="clean",
    plan_id="clean/orders-3",
    topic="orders",
    partition=3,
    now_ms=int(NOW.timestamp() * 1000),
    level_out=2,
    clean_below=None,
    log_end_offset=20,
    delete_retention_ms=int(RETENTION.total_seconds() * 1000),
    segments_in=64,
    segments_out=2,
    bytes_in=12_300_000,
    bytes_out=8_100_000,
    records_in=14,
    records_out=9,
    superseded=3,
    tombstones_removed=1,
    quarantined=1,
)
MERGE = replace(CLAIM, lane="merge", level_out=1, records_out=14, superseded=0, tombstones_removed=0, quarantined=0)
RECORD_COUNTS = "expect_record_counts_to_add_up"

Records = list[Record]


def table(records: Records, schema: pa.Schema = SCHEMA) -> pa.Table:
    """The records as Arrow has them."""
    return pa.table({name: [_plain(getattr(one, name)) for one in records] for name in schema.names}, schema)


def _plain(value: Any) -> Any:
    return [{"key": key, "value": inner} for key, inner in value] if isinstance(value, list) else value


def part(side: str, held: pa.Table) -> Part:
    """A table in memory as a part of a side."""

    def read(columns: Sequence[str] | None) -> Iterator[pa.Table]:
        yield held if columns is None else held.select(list(columns))

    return Part(side, read)


def hiding(name: str, first: int, end: int) -> Listed:
    """The entry of the data file ``name``, whose records from place ``first`` up to ``end`` are hidden."""

    def read() -> Iterator[pa.RecordBatch]:
        rows = {"file_path": pa.array([name] * (end - first), pa.large_string())}
        yield pa.RecordBatch.from_pydict(rows | {"pos": pa.array(range(first, end), pa.int64())})

    return Listed(1, "place", (Deletes(f"{first} to {end}", 2, "place", None, (), read),))


def fingerprint_of(records: Records) -> int:
    """The fingerprint of a cleaner that has read ``records``."""
    return Fingerprint(KAFKAS.kept(SCHEMA.names)).of(table(records))


def judge_all(
    inputs: pa.Table,
    outputs: pa.Table,
    claims: Sequence[Claim],
    reports: Path,
    *,
    fingerprints: Sequence[int] | None = None,
    left: pa.Table | None = None,
    samples: Shown = "full",
) -> dict[str, Verdict]:
    """The verdicts on the plans of ``claims`` by plan id."""
    parts = [part(BEFORE, inputs), part(AFTER, outputs), *([] if left is None else [part(IN_PLACE, left)])]
    found = judge(parts, inputs.schema, claims, KAFKAS, fingerprints=fingerprints, samples=samples)
    return verdicts(claims, found, reports, job="job")


def failed(verdict: Verdict) -> dict[str, Finding]:
    """The promises that were not kept, by name."""
    return {finding.name: finding for finding in verdict.failures}


def without(record: Record) -> Records:
    """A result that lacks ``record``."""
    return [r for r in OUTPUTS if r.offset != record.offset]


def instead(record: Record, **changes: Any) -> Records:
    """A result in which ``record`` is another."""
    return [replace(r, **changes) if r.offset == record.offset else r for r in OUTPUTS]
