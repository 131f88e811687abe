"""The Kafka side: a Java program around the released cleaner, compiled and run once for all workloads of a call."""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from infra import java
from tests.conformance.workloads import Workload

DRIVER = Path(__file__).with_name("KafkaCleaner.java")


class Kept(NamedTuple):
    """A record that is left. ``horizon`` is when a tombstone may go, epoch milliseconds; None before it is stamped."""

    key: bytes | None
    value: bytes | None
    horizon: int | None


class Pass(NamedTuple):
    """One cleaning of the offsets from ``start`` up to, not including, ``end``; how many null keys it dropped."""

    start: int
    end: int
    null_keys: int


class Cleaned(NamedTuple):
    """A log after its cleaner was let loose at ``now``: as many passes as it wanted, none when nothing was dirty."""

    now: int
    passes: tuple[Pass, ...]
    checkpoint: int
    records: dict[int, Kept]
    empty_batches: tuple[int, ...] = ()
    """Offsets whose record is gone while its batch stays, for the sake of its producer's sequence or the log end."""


def clean(workloads: Sequence[Workload], scratch: Path) -> list[list[Cleaned]]:
    """Records that Kafka's cleaner leaves after each step of each workload. ``scratch`` gets the compiled driver."""
    lines = "".join(json.dumps(workload.as_json()) + "\n" for workload in workloads)
    path = java.compiled(DRIVER, scratch / "classes", java.KAFKA_JARS)
    done = java.run(["-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", path, DRIVER.stem], lines)
    reports = [json.loads(line) for line in done.splitlines()]
    if [report["id"] for report in reports] != [workload.id for workload in workloads]:
        raise java.JavaError(f"{len(reports)} of {len(workloads)} workloads were answered")
    return [[_cleaned(cleaning) for cleaning in report["cleanings"]] for report in reports]


def _cleaned(report: dict[str, Any]) -> Cleaned:
    return Cleaned(
        now=report["now"],
        passes=tuple(Pass(one["from"], one["to"], one["null_keys"]) for one in report["passes"]),
        checkpoint=report["checkpoint"],
        records={
            row["offset"]: Kept(_bytes(row["key"]), _bytes(row["value"]), row.get("horizon"))
            for row in report["records"]
        },
        empty_batches=tuple(report["empty_batches"]),
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
