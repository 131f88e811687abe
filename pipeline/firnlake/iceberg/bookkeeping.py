"""The progress of sinks, which they keep in snapshot summaries: Firn's snapshots repeat it.

Kafka Connect, Flink, Spark streaming and Redpanda look up their last commit in the summaries, from a branch's newest
snapshot back to the first one whose parent has expired; AutoMQ looks at the newest snapshot alone. A sink that finds
nothing writes everything again, or leaves a hole. Therefore each snapshot that Firn adds to a branch of theirs repeats
what the branch tells on the very load that the commit asserts, and an expiry first adds what it would cut off.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from pyiceberg.table.snapshots import Snapshot

from firnlake.iceberg.branches import firn_properties, number_of, properties_of

PROGRESS_MS: Final = "firn.progress-ms"
"""Property of an empty snapshot that an expiry adds: when the sink committed what it repeats, in epoch ms."""
KEPT_MS: Final = 30 * 86_400_000
"""Time, in milliseconds, for which an expiry keeps the progress of a sink that commits no more."""

_CONNECT: Final = "kafka.connect."
_FLINK: Final = "flink."
_SPARK: Final = "spark.sql.streaming."
_REDPANDA: Final = "redpanda."
_AUTOMQ: Final = "automq."
_NAMED_BY: Final = {_FLINK: ("flink.job-id", "flink.operator-id"), _SPARK: ("spark.sql.streaming.queryId",)}
"""The properties that tell one sink from another of the same kind; all properties of such a sink belong together."""


class _Progress(NamedTuple):
    """What a sink last said: properties that belong together, and when it said so, in epoch milliseconds."""

    properties: dict[str, str]
    said_ms: int


def _progress(line: Iterable[Snapshot]) -> Mapping[Sequence[str], _Progress]:
    """What each sink finds when it walks back ``line`` (newest first); the sinks with the newest progress first."""
    progress: dict[Sequence[str], _Progress] = {}
    for snapshot in line:
        said_ms = number_of(firn_properties(snapshot).get(PROGRESS_MS)) or snapshot.timestamp_ms
        for sink, properties in _by_sink(properties_of(snapshot)).items():
            progress.setdefault(sink, _Progress(properties, said_ms))
    return progress


def _by_sink(summary: Mapping[str, str]) -> Mapping[Sequence[str], dict[str, str]]:
    """The properties of sinks in one summary, by what identifies the sink."""
    by_sink: dict[Sequence[str], dict[str, str]] = {}
    for name, value in summary.items():
        if name.startswith((_CONNECT, _AUTOMQ)):
            by_sink[(name,)] = {name: value}
        elif name.startswith(_REDPANDA):
            by_sink[name, _cluster(value)] = {name: value}
        elif kind := next((one for one in _NAMED_BY if name.startswith(one)), None):
            sink = (kind, *(summary.get(one, "") for one in _NAMED_BY[kind]))
            by_sink.setdefault(sink, {})[name] = value
    return by_sink


def _cluster(text: str) -> str:
    """The cluster in Redpanda's property; empty if the text is not Redpanda's."""
    try:
        metadata = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    return str(metadata.get("cluster", "")) if isinstance(metadata, dict) else ""


def repeated(line: Iterable[Snapshot]) -> dict[str, str]:
    """The summary properties that a new snapshot on top of ``line`` (newest first) repeats.

    A summary has one value per name, so of several Flink jobs the newest fits; the others still find theirs behind it.
    """
    summary: dict[str, str] = {}
    for progress in _progress(line).values():
        if summary.keys().isdisjoint(progress.properties):
            summary |= progress.properties
    return summary


def cut_off(line: Sequence[Snapshot], expired: Collection[int], now_ms: int) -> list[dict[str, str]]:
    """Summaries of the empty snapshots to add to the branch with this ``line`` (newest first), the oldest one first.

    They tell again what the ``expired`` snapshots alone tell, unless it is older than ``KEPT_MS`` at ``now_ms`` (epoch
    milliseconds). The last one adds nothing to what every new snapshot repeats. So a sink that shares its names with
    sinks that came after it does not hide their progress, and its own keeps its age.
    """
    kept = _progress(takewhile(lambda one: one.snapshot_id not in expired, line))
    lost = [one for sink, one in _progress(line).items() if sink not in kept and now_ms - one.said_ms < KEPT_MS]
    every = repeated(line)
    hidden = [one for one in reversed(lost) if not one.properties.items() <= every.items()]
    return [*({**one.properties, PROGRESS_MS: str(one.said_ms)} for one in hidden), *([{}] if lost else [])]
