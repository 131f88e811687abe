"""``make bench-plans``: what Spark does for a full clean, and where the time goes, into docs/performance.md.

Taken from Spark's own event log, so that nothing of the engine has to be called for it: the plan of every query as
``EXPLAIN FORMATTED`` prints it, after adaptive execution, and the metrics of its tasks.
"""

import argparse
import json
import os
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench import flight
from tests.bench.data import Shape

DOCUMENT = Path(__file__).parents[2] / "docs" / "performance.md"
_START = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"
_END = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd"
_ADAPTED = "org.apache.spark.sql.execution.ui.SparkListenerSQLAdaptiveExecutionUpdate"
_QUERY = "spark.sql.execution.id"
_SHOWN = 0.02
"""Plans of queries that take less than this part of the time are left out."""
_LINE = 160
_EVERYWHERE = ("Project", "ColumnarToRow", "InputAdapter", "AdaptiveSparkPlan")


@dataclass
class Query:
    """One query of a run; times in milliseconds since the epoch, ``tasks`` are sums over its tasks (ms, bytes)."""

    number: int
    plan: str
    start: int
    end: int = 0
    tasks: Counter[str] = field(default_factory=Counter)

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / 1000

    @property
    def operators(self) -> str:
        """The plan's operators in its order, each once, without those that are everywhere."""
        tree = self.plan.partition("\n\n")[0]
        names = re.findall(r"^[ :+*-]*([A-Z]\w+)", tree, re.MULTILINE)
        return ", ".join(name for name in dict.fromkeys(names) if name not in _EVERYWHERE)


def queries(events: Iterable[Mapping[str, Any]]) -> list[Query]:
    """The queries of an event log (one JSON object per event), in the order in which they began."""
    found: dict[int, Query] = {}
    query_of_stage: dict[int, int] = {}
    for event in events:
        kind = event["Event"]
        if kind == _START:
            number = event["executionId"]
            found[number] = Query(number, event["physicalPlanDescription"], event["time"])
        elif kind == _ADAPTED and event["executionId"] in found:
            found[event["executionId"]].plan = event["physicalPlanDescription"]
        elif kind == _END and event["executionId"] in found:
            found[event["executionId"]].end = event["time"]
        elif kind == "SparkListenerJobStart" and _QUERY in event.get("Properties", {}):
            query_of_stage |= dict.fromkeys(event["Stage IDs"], int(event["Properties"][_QUERY]))
        elif kind == "SparkListenerTaskEnd" and query_of_stage.get(event["Stage ID"]) in found:
            found[query_of_stage[event["Stage ID"]]].tasks.update(_metrics(event.get("Task Metrics") or {}))
    return [query for query in found.values() if query.end]


def _metrics(task: Mapping[str, Any]) -> dict[str, int]:
    written = task.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
    return {
        "tasks": 1,
        "processor": task.get("Executor CPU Time", 0) // 10**6,
        "collected": task.get("JVM GC Time", 0),
        "shuffled": written,
        "spilled": task.get("Disk Bytes Spilled", 0),
    }


def read(folder: Path) -> list[Query]:
    """The queries of the event logs in ``folder``."""
    lines = (line for path in sorted(folder.rglob("*")) if path.is_file() for line in _lines(path))
    return queries(json.loads(line) for line in lines)


def _lines(path: Path) -> Iterator[str]:
    if path.name.startswith(("appstatus", ".")):
        return
    with path.open(encoding="utf-8") as file:
        yield from file


def markdown(
    title: str, rooms: Mapping[str, float], found: Sequence[Query], profile: Sequence[tuple[str, float]]
) -> str:
    """A table of the queries, what tasks were doing, and the plans of the queries that matter."""
    whole = sum(query.seconds for query in found)
    spent = ", ".join(f"{room} {seconds:.1f} s" for room, seconds in rooms.items())
    lines = [
        f"{title}. Rooms: {spent}.",
        "",
        "| query | s | tasks | their processor s | GC s | shuffled MB | spilled MB | operators |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for query in found:
        tasks = query.tasks
        figures = (
            f"{query.seconds:.2f}",
            str(tasks["tasks"]),
            f"{tasks['processor'] / 1000:.2f}",
            f"{tasks['collected'] / 1000:.2f}",
            f"{tasks['shuffled'] / 1e6:.1f}",
            f"{tasks['spilled'] / 1e6:.1f}",
        )
        lines.append(f"| {query.number} | {' | '.join(figures)} | {query.operators} |")
    lines += ["", "What tasks were doing: " + ", ".join(f"{work} {share:.0%}" for work, share in profile) + "."]
    for query in found:
        if query.seconds >= _SHOWN * whole:
            plan = "\n".join(line[:_LINE] for line in _shown(query.plan))
            summary = f"query {query.number}, {query.seconds:.2f} s"
            lines += ["", f"<details><summary>{summary}</summary>", "", "```", plan, "```", "", "</details>"]
    return "\n".join(lines) + "\n"


def _shown(plan: str) -> Iterator[str]:
    """The tree as it ran, and what its scans and exchanges read and pass on."""
    tree, *nodes = plan.strip().split("\n\n")
    final = tree.partition("+- == Initial Plan ==")[0].rstrip()
    yield from final.splitlines()
    for node in nodes:
        head = node.strip().partition("\n")[0]
        number = re.match(r"\((\d+)\) (BatchScan|Exchange|BroadcastExchange)", head)
        if number and f"({number[1]})" in final:
            yield from ("", *node.strip().splitlines())


def main() -> int:
    """Entry point; see --help."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.plans", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--home", type=Path, default=Path(".firn", "bench"))
    arguments = parser.parse_args()
    home: Path = arguments.home.resolve()
    logs = home / "events"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    os.environ.setdefault("SPARK_LOCAL_DIRS", str(home / "spark"))
    os.environ["FIRN_SPARK_MASTER"] = f"local[{os.cpu_count() or 1}]"
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{logs}",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }
    options = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"{options} pyspark-shell"
    recording = logs.with_suffix(".jfr")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {flight.OPTIONS}"
    text = _measured(arguments.scale, home, logs, recording)
    from tests.bench.tables import into

    into(DOCUMENT, "bench-plans", text)
    return 0


def _measured(scale: float, home: Path, logs: Path, recording: Path) -> str:
    from pipeline.lake import Lake
    from pipeline.lake.spark import session
    from tests.bench import cases
    from tests.bench.entries import Bench
    from tests.bench.inputs import prepare
    from tests.bench.measure import WARM_UP, WARM_UP_RUNS

    lake = Lake.embedded(home)
    lake.create_namespace("bench")
    base = Shape(1000, "uniform", None, 1, int(cases.BASE_RECORDS * scale))
    little = Shape(1000, "append", 0.01, 1, int(cases.BASE_RECORDS * scale * 2), cases.CLUSTERED_SEGMENTS)
    runs = []
    spark = session(lake, "firn bench plans")
    try:
        bench = Bench(spark, os.cpu_count() or 1, home / "scratch")
        bench.scratch.mkdir(parents=True, exist_ok=True)
        for _ in range(WARM_UP_RUNS):
            with cases.FULL.run(bench, prepare(lake, WARM_UP, spark)):
                pass
        for shape in (base, little):
            inputs = prepare(lake, shape, spark)
            with cases.FULL.run(bench, inputs):
                pass
            began = time.time() * 1000
            with cases.FULL.run(bench, inputs) as done:
                runs.append((shape.title, done.rooms, began, time.time() * 1000))
        flight.dump(recording)
    finally:
        spark.stop()
    every, samples = read(logs), flight.read(recording)
    return "\n".join(
        markdown(
            title,
            rooms,
            [query for query in every if began <= query.start <= ended],
            flight.shares(samples, began, ended),
        )
        for title, rooms, began, ended in runs
    )


if __name__ == "__main__":
    sys.exit(main())
