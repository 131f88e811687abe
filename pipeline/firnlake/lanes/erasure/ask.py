"""Makes requests to erase keys (C30)."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.transforms import BucketTransform, VoidTransform

from firnlake.clock import exact_span
from firnlake.errors import RefusedError
from firnlake.iceberg.branch_snapshot import BranchChange
from firnlake.iceberg.branches import at_snapshot
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import Change
from firnlake.iceberg.commit import commit_changes
from firnlake.iceberg.snapshots import MAX_SNAPSHOT_AGE, max_snapshot_age
from firnlake.lanes.erasure.digests import digest_of, named_keys
from firnlake.lanes.erasure.requests import Request, key_ids, withdraw, write_request
from firnlake.lanes.erasure.snapshot_files import SnapshotFiles, locations_of
from firnlake.table.columns import ColumnRoles
from firnlake.table.policies import Policies
from firnlake.table.policy import DAY_MS, LONG_MAX
from firnlake.table.segment_cache import ManifestCache
from firnlake.table.segments import read
from firnlake.table.topic_partition import TopicPartition
from firnlake_expectations.wording import count

_WITHIN_MS: Final = 30 * DAY_MS
"""Time, in milliseconds, that a request allows for the erasure unless it says otherwise."""
_LONGEST_MS: Final = 36_525 * DAY_MS
"""Longest time that a request may allow for the erasure, in milliseconds: a hundred years."""
_SHOWN: Final = 20
"""Maximum number of topics that a message names."""
_GC: Final = "gc.enabled"


def ask(
    lake: Lake,
    identifier: str,
    keys: Sequence[Sequence[bytes]],
    now_ms: int,
    topic: str | None = None,
    within_ms: int | None = None,
) -> Request:
    """Request that ``keys``, each named by the values of its columns, are erased from ``topic`` of a table.

    Without ``topic``, the table must have only one topic. Without ``within_ms``, Firn has 30 days. A key that the table
    has never held is no error. Raises RefusedError for a key that does not fit the table, for an unknown topic, and for
    what can't be kept: a table that is partitioned by its key, or a time before which the table's older snapshots do
    not expire.
    """
    table = lake.table(identifier)
    columns = ColumnRoles.of(table, identifier)
    _check_partitioning(table, identifier, columns)
    named = list(dict.fromkeys(named_keys(table, columns, keys)))
    expires = Policies.parse(identifier, table.properties).default.erase_history == "expire"
    within_ms = _WITHIN_MS if within_ms is None else within_ms
    _check_time(table, identifier, within_ms, expires)
    table_uuid = str(table.metadata.table_uuid)
    digests = tuple(digest_of(key, table_uuid) for key in named)
    tried: list[Request] = []

    def withdraw_tried() -> None:
        while tried:
            withdraw(table, tried.pop().id)

    def changes(current: Table) -> Mapping[str, BranchChange]:
        """Write the request, and then give main a newer snapshot (module ``requests``)."""
        withdraw_tried()
        found, log_ends = _log_ends(lake, current, identifier, topic)
        request = Request(
            id=uuid.uuid4().hex,
            table_uuid=table_uuid,
            topic=found,
            log_ends=log_ends,
            sequence_number=current.metadata.next_sequence_number() - 1,
            requested_ms=now_ms,
            deadline_ms=now_ms + within_ms,
            expires_history=expires,
            key_ids=key_ids(table),
            digests=digests,
            outside=_outside(current),
        )
        tried.append(request)
        write_request(current, request)
        return {MAIN_BRANCH: Change()}

    try:
        commit_changes(lake, identifier, changes)
    except RefusedError:
        withdraw_tried()
        raise
    return tried[-1]


def _check_partitioning(table: Table, identifier: str, columns: ColumnRoles) -> None:
    if shown := key_fields(table, columns, table.spec()):
        raise RefusedError(
            f"table {identifier} is partitioned by its key ({', '.join(shown)}), so paths and manifests show keys; "
            "allowed: a table that is not partitioned by its key (adopt another key, or change the partitions)"
        )


def key_fields(table: Table, columns: ColumnRoles, spec: PartitionSpec) -> list[str]:
    """Names of the partition fields of ``spec`` that show values of key columns.

    A bucket's number shows nothing that many other keys do not share.
    """
    keys = {table.schema().find_field(name).field_id for name in columns.key}
    harmless = (VoidTransform, BucketTransform)
    return [one.name for one in spec.fields if one.source_id in keys and not isinstance(one.transform, harmless)]


def _check_time(table: Table, identifier: str, within_ms: int, expires: bool) -> None:
    if not 0 < within_ms <= _LONGEST_MS:
        raise RefusedError(
            f"table {identifier}: {within_ms} ms is not a valid time for an erasure; allowed: 1 to {_LONGEST_MS} ms"
        )
    main = table.metadata.refs.get(MAIN_BRANCH)
    age = max_snapshot_age(table.properties)
    age = age if main is None or main.max_snapshot_age_ms is None else main.max_snapshot_age_ms
    if not expires and within_ms <= age:
        raise RefusedError(
            f"table {identifier}: keys can't be erased within {exact_span(within_ms)}, because snapshots that hold "
            f"them stay for {exact_span(age)} ({MAX_SNAPSHOT_AGE}); allowed: a longer time, a lower age, or "
            "firn.erase.history=expire"
        )
    if table.properties.get(_GC, "true").strip().lower() == "false":
        raise RefusedError(
            f"table {identifier}: keys can't be erased, because property {_GC} is false, so older files stay for ever; "
            "allowed: true"
        )


def _log_ends(lake: Lake, table: Table, identifier: str, wanted: str | None) -> tuple[str, dict[int, int]]:
    """The requested topic, and for each partition the last offset in any branch or tag, plus 1."""
    ends: dict[TopicPartition, int] = {}
    cache = ManifestCache.of(lake)
    for snapshot_id in {ref.snapshot_id for ref in table.metadata.refs.values()}:
        for owner, segments in read(at_snapshot(table, snapshot_id), identifier, cache=cache).by_partition.items():
            for segment in segments:
                if segment.problem and segment.last_offset < 0:
                    raise RefusedError(
                        f"table {identifier}: the log end of {owner} is unknown: segment {segment.path} "
                        f"{segment.problem}"
                    )
                ends[owner] = max(ends.get(owner, 0), segment.last_offset + 1)
    topic = _topic({owner.topic for owner in ends}, identifier, wanted)
    log_ends = {owner.partition: end for owner, end in sorted(ends.items()) if owner.topic == topic}
    for partition, end in log_ends.items():
        if end > LONG_MAX:
            raise RefusedError(
                f"table {identifier}: the log of {TopicPartition(topic, partition)} ends at offset {LONG_MAX}, which "
                "no request can cover; allowed: a log that ends at a lower offset"
            )
    return topic, log_ends


def _topic(topics: set[str], identifier: str, wanted: str | None) -> str:
    if wanted in topics:
        return wanted or ""
    if wanted is None and len(topics) == 1:
        return next(iter(topics))
    names = ", ".join(sorted(topics)[:_SHOWN]) + (f" and {len(topics) - _SHOWN} more" if len(topics) > _SHOWN else "")
    several = f"has {count(len(topics), 'topic')}, and none was named"
    found = several if wanted is None else f"holds no record of topic {wanted!r}"
    allowed = f"one of {names}" if names else "none, because the table is empty"
    raise RefusedError(f"table {identifier} {found}; allowed: {allowed}")


def _outside(table: Table) -> tuple[str, ...]:
    """Locations of the files that a snapshot of ``table`` names outside the folders that a search lists."""
    within = tuple(f"{location}/" for location in locations_of(table))
    return tuple(sorted(path for path in SnapshotFiles.of(table).files if not path.startswith(within)))
