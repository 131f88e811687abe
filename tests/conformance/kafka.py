"""The Kafka side: a Java program around the released cleaner, compiled and run once for all workloads of a call."""

import base64
import json
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.conformance.workloads import Workload

ROOT = Path(__file__).parents[2]
JARS = ROOT / ".cache" / "kafka-jars"
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


class DriverError(Exception):
    """Java, the jars or the driver did not do what they should."""


def clean(workloads: Sequence[Workload], scratch: Path) -> list[list[Cleaned]]:
    """What Kafka's cleaner leaves after each step of each workload. ``scratch`` gets the compiled driver."""
    lines = "".join(json.dumps(workload.as_json()) + "\n" for workload in workloads)
    classes = _compiled(scratch)
    path = os.pathsep.join([*_class_path(), str(classes)])
    done = _java(["-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", path, DRIVER.stem], lines)
    reports = [json.loads(line) for line in done.splitlines()]
    if [report["id"] for report in reports] != [workload.id for workload in workloads]:
        raise DriverError(f"{len(reports)} of {len(workloads)} workloads were answered")
    return [[_cleaned(cleaning) for cleaning in report["cleanings"]] for report in reports]


def _compiled(scratch: Path) -> Path:
    """Compile with the Eclipse compiler, a jar like the others: a Java runtime without javac is enough."""
    classes = scratch / "classes"
    if not classes.exists():
        (compiler,) = _jars("ecj-*.jar")
        level = ["-source", "17", "-target", "17", "-proc:none"]
        path = os.pathsep.join(_class_path())
        _java(["-jar", str(compiler), *level, "-cp", path, "-d", str(classes), str(DRIVER)], "")
    return classes


def _class_path() -> list[str]:
    return [str(jar) for jar in _jars("*.jar") if not jar.name.startswith("ecj-")]


def _jars(pattern: str) -> list[Path]:
    found = sorted(JARS.glob(pattern))
    if not found:
        raise DriverError(f"no {pattern} in {JARS}; `make test` and `make conformance` fetch Kafka's jars there")
    return found


def _java(arguments: Iterable[str], text: str) -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    done = subprocess.run([java, *arguments], input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DriverError(f"java ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


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
