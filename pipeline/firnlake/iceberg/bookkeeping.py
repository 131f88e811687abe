"""The progress of other writers, which they keep in snapshot summaries: Firn's snapshots repeat it.

Kafka Connect, Flink, Spark streaming and Redpanda look up their last commit in the summaries, from a branch's newest
snapshot back to the first one whose parent has expired; AutoMQ looks at the newest snapshot alone. A writer that finds
nothing writes everything again, or leaves a hole. Therefore each snapshot that Firn adds to a branch of theirs repeats
what the branch tells on the very load that the commit asserts, and an expiry first adds what it would cut off.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, NamedTuple

from pyiceberg.table.snapshots import Snapshot

CARRY: Final = "firn.carry"
"""Table property: names of further summary properties to repeat, separated by commas."""
NEVER_CARRIED: Final = frozenset({"wap.id", "published-wap-id", "commit-user"})
"""Properties that are about one snapshot alone: a second snapshot with the same value would mislead their readers."""
MOST_WRITERS: Final = 10
"""Number of writers of a kind, the newest ones, whose progress an expiry keeps."""
MOST_BYTES: Final = 16 * 1024
"""Most bytes of other writers' properties in one summary; every reader of the table loads all summaries."""

_OFFSETS: Final = "kafka.connect.offsets."
_ALONE: Final = frozenset(
    {
        *("kafka.connect.commit-id", "kafka.connect.task-id", "kafka.connect.valid-through-ts"),
        *("automq.commit.id", "automq.watermark"),
    }
)
_FLINK: Final = ("flink.job-id", "flink.operator-id", "flink.max-committed-checkpoint-id")
_SPARK: Final = ("spark.sql.streaming.queryId", "spark.sql.streaming.epochId")
_REDPANDA: Final = "redpanda.commit-metadata"


class Writer(NamedTuple):
    """A kind of writer, and what tells one writer of the kind from another."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".strip()


def _further(properties: Mapping[str, str]) -> frozenset[str]:
    """The names in the table property ``firn.carry``."""
    return frozenset(filter(None, (name.strip() for name in properties.get(CARRY, "").split(",")))) - NEVER_CARRIED


def _entries(summary: Mapping[str, str], more: Collection[str]) -> Iterator[tuple[Writer, Mapping[str, str]]]:
    """The progress that one summary tells, by writer: properties that belong together."""
    for name, value in summary.items():
        if name.startswith(_OFFSETS):
            yield Writer(_OFFSETS, name.removeprefix(_OFFSETS)), {name: value}
        elif name in _ALONE or name in more:
            yield Writer(name, ""), {name: value}
    if _FLINK[0] in summary:
        group = {name: summary[name] for name in _FLINK if name in summary}
        yield Writer("Flink", f"{summary[_FLINK[0]]}, {summary.get(_FLINK[1], '')}"), group
    if _SPARK[0] in summary:
        yield Writer("Spark", summary[_SPARK[0]]), {name: summary[name] for name in _SPARK if name in summary}
    if _REDPANDA in summary:
        yield Writer("Redpanda", _cluster(summary[_REDPANDA])), {_REDPANDA: summary[_REDPANDA]}


def _cluster(text: str) -> str:
    """The cluster in Redpanda's property; empty if the text is not Redpanda's."""
    try:
        told = json.loads(text)
    except ValueError:
        return ""
    return str(told.get("cluster", "")) if isinstance(told, dict) else ""


def _progress(line: Iterable[Snapshot], more: Collection[str]) -> dict[Writer, Mapping[str, str]]:
    """What each writer finds when it walks back ``line`` (newest first); the writers with the newest progress first."""
    found: dict[Writer, Mapping[str, str]] = {}
    for snapshot in line:
        # Don't test the truth value: that computes the length of the summary, which is costly.
        if snapshot.summary is not None:
            for writer, properties in _entries(snapshot.summary.additional_properties, more):
                found.setdefault(writer, properties)
    return found


def _add(summary: dict[str, str], properties: Mapping[str, str]) -> bool:
    """Add ``properties`` to ``summary``; False if it has other values for these names, or no room."""
    together = {**summary, **properties}
    size = sum(len(name.encode()) + len(value.encode()) for name, value in together.items())
    if size > MOST_BYTES or not summary.keys().isdisjoint(properties):
        return False
    summary |= properties
    return True


def carried(line: Iterable[Snapshot], properties: Mapping[str, str]) -> dict[str, str]:
    """The summary properties that a new snapshot on top of ``line`` (newest first) repeats.

    ``properties`` are those of the table. A summary has one value per name, so of several Flink jobs the newest fits;
    the others still find theirs behind it.
    """
    summary: dict[str, str] = {}
    for progress in _progress(line, _further(properties)).values():
        _add(summary, progress)
    return summary


@dataclass(frozen=True)
class Cut:
    """What an expiry takes from the writers of a branch."""

    again: Sequence[Mapping[str, str]]
    """Summaries of the empty snapshots that tell it again, oldest first."""
    dropped: Sequence[Writer]
    """The writers that find nothing afterwards."""


def cut_by(line: Sequence[Snapshot], expired: Collection[int], properties: Mapping[str, str]) -> Cut:
    """What the writers of the branch with this ``line`` (newest first) lose when the ``expired`` snapshots go.

    ``properties`` are those of the table.
    """
    more = _further(properties)
    kept = _progress(takewhile(lambda one: one.snapshot_id not in expired, line), more)
    ranks: dict[str, int] = {}
    lost: list[Mapping[str, str]] = []
    dropped = []
    for writer, progress in _progress(line, more).items():
        ranks[writer.kind] = ranks.get(writer.kind, 0) + 1
        if writer in kept:
            continue
        if ranks[writer.kind] <= MOST_WRITERS and _add({}, progress):
            lost.append(progress)
        else:
            dropped.append(writer)
    again: list[dict[str, str]] = []
    for progress in reversed(lost):
        if not again or not _add(again[-1], progress):
            again.append(dict(progress))
    return Cut(again, dropped)
