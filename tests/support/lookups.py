"""How other writers look up their progress in snapshot summaries: each follows the writer's own source file.

All walk back from main's head to the first snapshot whose parent has expired, without their checks for errors.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

Summary = Mapping[str, str]


@dataclass(frozen=True)
class Writer:
    """A writer's properties for a commit number, and its look-up of the newest one."""

    name: str
    properties: Callable[[int], dict[str, str]]
    look_up: Callable[[Iterable[Summary]], str | None]


def _first(line: Iterable[Summary], name: str) -> str | None:
    return next((one[name] for one in line if name in one), None)


def _connect(line: Iterable[Summary]) -> str | None:
    """Iceberg, `connect/channel/Coordinator.java`, lastCommittedOffsetsForTable."""
    told = _first(line, "kafka.connect.offsets.control.group")
    return None if told is None else str(json.loads(told)["0"])


def _flink(line: Iterable[Summary]) -> str | None:
    """Iceberg, `flink/sink/SinkUtil.java`, getMaxCommittedCheckpointId."""
    own = (one for one in line if (one.get("flink.job-id"), one.get("flink.operator-id")) == ("job", "operator"))
    return next((one["flink.max-committed-checkpoint-id"] for one in own), None)


def _spark(line: Iterable[Summary]) -> str | None:
    """Iceberg, `spark/source/SparkWrite.java`, findLastCommittedEpochId."""
    own = (one for one in line if one.get("spark.sql.streaming.queryId") == "query")
    return next((one["spark.sql.streaming.epochId"] for one in own), None)


def _redpanda(line: Iterable[Summary]) -> str | None:
    """Redpanda, `datalake/coordinator/iceberg_file_committer.cc`, get_iceberg_committed_offset."""
    told = (json.loads(one["redpanda.commit-metadata"]) for one in line if "redpanda.commit-metadata" in one)
    return next((str(one["offset"]) for one in told if one["cluster"] == "cluster"), None)


def _automq(line: Iterable[Summary]) -> str | None:
    """AutoMQ, `kafka/automq/table/coordinator/TableCoordinator.java`, getLastSnapshotCommitId: the head alone."""
    return next((one.get("automq.commit.id") for one in line), None)


WRITERS: Final = (
    Writer("Kafka Connect", lambda number: {"kafka.connect.offsets.control.group": f'{{"0": {number}}}'}, _connect),
    Writer(
        "Flink",
        lambda number: {
            "flink.job-id": "job",
            "flink.operator-id": "operator",
            "flink.max-committed-checkpoint-id": str(number),
        },
        _flink,
    ),
    Writer(
        "Spark",
        lambda number: {"spark.sql.streaming.queryId": "query", "spark.sql.streaming.epochId": str(number)},
        _spark,
    ),
    Writer(
        "Redpanda",
        lambda number: {"redpanda.commit-metadata": f'{{"offset": {number}, "cluster": "cluster"}}'},
        _redpanda,
    ),
    Writer("AutoMQ", lambda number: {"automq.commit.id": str(number), "automq.watermark": "1"}, _automq),
)
