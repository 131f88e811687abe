"""What an expiry removes of snapshots, branches and tags, with reasons, and what it first has to tell again.

Sinks keep their progress in snapshot summaries. Kafka Connect, Flink, Spark streaming and Redpanda look up their last
commit there, from a branch's newest snapshot back to the first one whose parent has expired; AutoMQ looks at the newest
snapshot alone. A sink that finds nothing writes everything again, or leaves a hole. Therefore each snapshot that Firn
adds to a branch of theirs repeats what the branch tells on the very load that the commit asserts, and an expiry first
adds what it would cut off.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, NamedTuple

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from firnlake.errors import RefusedError
from firnlake.iceberg.branches import (
    BRANCH,
    FIRN_BRANCHES,
    firn_properties,
    line_of,
    memory_in,
    number_of,
    older_tombstones,
    properties_of,
)

MAX_SNAPSHOT_AGE: Final = "history.expire.max-snapshot-age-ms"
MIN_SNAPSHOTS: Final = "history.expire.min-snapshots-to-keep"
ERASE_HISTORY: Final = "firn.erase.history"
MAX_REF_AGE: Final = "history.expire.max-ref-age-ms"
_DEFAULTS: Final = {MAX_SNAPSHOT_AGE: 432_000_000, MIN_SNAPSHOTS: 1, MAX_REF_AGE: 2**63 - 1}
_WHOLE: Final = re.compile("[0-9]{1,19}")


def max_snapshot_age(properties: Mapping[str, str]) -> int:
    """Maximum age, in milliseconds, of snapshots in a table with these ``properties``, unless a branch has another
    limit. Iceberg's default if the property is not a whole number."""
    text = properties.get(MAX_SNAPSHOT_AGE, "")
    return int(text) if _WHOLE.fullmatch(text) else _DEFAULTS[MAX_SNAPSHOT_AGE]


@dataclass(frozen=True)
class SnapshotRetention:
    """The snapshots that a table keeps, and the snapshots, branches and tags that expire, with reasons."""

    snapshots: frozenset[int]
    """Ids of the snapshots that the table keeps."""
    expired_snapshots: Mapping[int, str]
    """Reasons by id of the expired snapshot, in the order of the metadata (oldest first)."""
    expired_refs: Mapping[str, str]
    """Reasons by name of the expired branch or tag."""


def retained(
    identifier: str,
    metadata: TableMetadata,
    now_ms: int,
    erased_below: int = 0,
    needed: Collection[int] = (),
) -> SnapshotRetention:
    """The retention of table ``identifier`` with this ``metadata`` at ``now_ms`` (epoch milliseconds).

    On main and Firn's branches, snapshots with a sequence number below ``erased_below`` expire whatever their age,
    because they may hold erased keys. The newest snapshot of a branch, snapshots that a
    tag or another branch keeps, those with an id in ``needed``, and the memory of kept snapshots (``iceberg.branches``)
    do not expire. Raises RefusedError for a limit that is not a whole number.
    """
    limits = {name: _limit(identifier, metadata.properties, name) for name in _DEFAULTS}
    snapshots = {one.snapshot_id: one for one in metadata.snapshots}
    expired_refs = {
        name: reason
        for name, ref in metadata.refs.items()
        if name != MAIN_BRANCH
        and (reason := _ref_expires(ref, snapshots.get(ref.snapshot_id), now_ms, limits[MAX_REF_AGE]))
    }
    kept: set[int] = set()
    reached: dict[int, str] = {}
    for name, ref in metadata.refs.items():
        if name in expired_refs:
            continue
        kept.add(ref.snapshot_id)
        if ref.snapshot_ref_type is SnapshotRefType.TAG:
            reached.setdefault(ref.snapshot_id, "")
            continue
        max_age = limits[MAX_SNAPSHOT_AGE] if ref.max_snapshot_age_ms is None else ref.max_snapshot_age_ms
        least = limits[MIN_SNAPSHOTS] if ref.min_snapshots_to_keep is None else ref.min_snapshots_to_keep
        reason = f"on branch {name}, older than {MAX_SNAPSHOT_AGE} = {max_age}, not among the newest {least}"
        erasing = f"on branch {name}, from before keys were erased ({ERASE_HISTORY} = expire)"
        has_erased = name in (MAIN_BRANCH, *FIRN_BRANCHES)
        staying = True
        for place, snapshot in enumerate(line_of(metadata, ref.snapshot_id)):
            is_erased = has_erased and place > 0 and (snapshot.sequence_number or 0) < erased_below
            staying = staying and (place < least or now_ms - snapshot.timestamp_ms <= max_age)
            reached.setdefault(snapshot.snapshot_id, erasing if staying and is_erased else reason)
            if staying and not is_erased:
                kept.add(snapshot.snapshot_id)
    young = (one for one in metadata.snapshots if now_ms - one.timestamp_ms <= limits[MAX_SNAPSHOT_AGE])
    kept.update(one.snapshot_id for one in young if one.snapshot_id not in reached)
    others = {*needed, *_memory_of(metadata, {*kept, *needed})}
    beside = (snapshots[one] for one in others if one in snapshots)
    kept.update(one.snapshot_id for one in beside if (one.sequence_number or 0) >= erased_below)
    alone = f"no branch or tag reaches it, older than {MAX_SNAPSHOT_AGE} = {limits[MAX_SNAPSHOT_AGE]}"
    expired = {one: reached.get(one, alone) for one in snapshots if one not in kept}
    return SnapshotRetention(frozenset(snapshots.keys() - expired.keys()), expired, expired_refs)


def _memory_of(metadata: TableMetadata, kept: Collection[int]) -> set[int]:
    """Ids of the snapshots of removed tombstones that belong to the histories of the ``kept`` snapshots."""
    memory: dict[int | None, int] = {}
    own = (one for one in metadata.snapshots if BRANCH not in firn_properties(one))
    # Parents come first, because their numbers are lower.
    for snapshot in sorted(own, key=lambda one: one.sequence_number or 0):
        named = memory_in(snapshot)
        if named is None and snapshot.parent_snapshot_id in memory:
            named = memory[snapshot.parent_snapshot_id]
        elif named is None:
            older = older_tombstones(metadata, snapshot)
            named = older.snapshot_id if older else 0
        memory[snapshot.snapshot_id] = named
    return {memory[one] for one in kept if memory.get(one)}


def _ref_expires(ref: SnapshotRef, snapshot: Snapshot | None, now_ms: int, default_ms: int) -> str | None:
    """The reason why ``ref``, which points at ``snapshot``, expires; None when it does not expire."""
    if snapshot is None:
        return f"its snapshot {ref.snapshot_id} is not in the table's metadata"
    max_age = default_ms if ref.max_ref_age_ms is None else ref.max_ref_age_ms
    if now_ms - snapshot.timestamp_ms <= max_age:
        return None
    return f"its snapshot is older than {MAX_REF_AGE} = {max_age}"


def _limit(identifier: str, properties: Mapping[str, str], name: str) -> int:
    text = properties.get(name, str(_DEFAULTS[name]))
    least = 1 if name == MIN_SNAPSHOTS else 0
    if not _WHOLE.fullmatch(text) or int(text) < least:
        raise RefusedError(
            f"table {identifier}: property {name} is {text[:100]!r}; allowed: a whole number, {least} or more"
        )
    return int(text)


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
