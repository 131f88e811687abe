"""Facts from manifests as rows: one row per live entry, valid for as long as a snapshot lists the manifest.

A row holds only facts that do not depend on the table's other manifests and snapshots. Commit time, row-level deletes
and repeated listings are added when the rows of a snapshot are combined.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from firnlake.iceberg.deletes import Deletes, Placed
from firnlake.table import arrays
from firnlake.table.arrays import Arrays, Ints
from firnlake.table.classifier import Classifier
from firnlake.table.history import CommitClock
from firnlake.table.manifest_rows import ListedFile
from firnlake.table.segment import Segment, UnassignedFile

if TYPE_CHECKING:
    from firnlake.table.topic_partition import TopicPartition


_OF_DELETES: Final = ("row_deletes", "equality_deletes", "hidden", "deletes")
"""Columns with the parts of ``DeleteTotals``."""
_HOLDING: Final = "holding_deletes"
_OF_SNAPSHOTS: Final = ("committed_ms", "by_firn", "whole", "copies", _HOLDING, *_OF_DELETES)
"""Facts of a segment that its manifest entry alone does not hold."""

SCHEMA: Final = pa.schema(
    [
        *(field for field in arrays.SCHEMA if field.name not in _OF_SNAPSHOTS),
        pa.field("snapshot_id", pa.int64()),
        pa.field("place", pa.string()),
        pa.field("data_sequence_number", pa.int64()),
    ]
)
"""A segment's own facts, the snapshot that added the segment, and the place and data sequence number that decide which
row-level deletes apply to it (``firnlake.iceberg.deletes``)."""


@dataclass(frozen=True)
class Found:
    """Contents of one or more manifests: segments as ``rows`` of ``SCHEMA``, and strays."""

    rows: pa.Table
    strays: tuple[UnassignedFile, ...] = ()

    @classmethod
    def of(cls, facts: Classifier, files: Iterable[ListedFile]) -> "Found":
        """Classify ``files`` with the classifier ``facts``."""
        snapshots: list[int | None] = []
        places: list[str] = []
        numbers: list[int] = []
        strays: list[UnassignedFile] = []

        def segments() -> Iterator[Segment]:
            for file in files:
                fact = facts.of(file)
                if isinstance(fact, UnassignedFile):
                    strays.append(fact)
                elif fact is not None:
                    snapshots.append(file.snapshot_id)
                    places.append(file.place)
                    numbers.append(file.sequence_number)
                    yield fact

        rows = arrays.rows(segments()).drop_columns(list(_OF_SNAPSHOTS))
        rows = rows.append_column("snapshot_id", pa.array(snapshots, pa.int64()))
        rows = rows.append_column("place", pa.array(places, pa.string()))
        rows = rows.append_column("data_sequence_number", pa.array(numbers, pa.int64()))
        return cls(rows.cast(SCHEMA), tuple(strays))

    @classmethod
    def together(cls, every: Iterable["Found"]) -> "Found":
        """Concatenate ``every`` in order."""
        parts = list(every)
        rows = pa.concat_tables([SCHEMA.empty_table(), *(part.rows for part in parts)])
        return cls(rows, tuple(stray for part in parts for stray in part.strays))

    def is_incomplete(self, facts: Classifier) -> bool:
        """True when a footer or time of writing that was needed could not be read; a later read may succeed."""
        if not facts.unread:
            return False
        return not facts.unread.isdisjoint((*self.rows["path"].to_pylist(), *(one.path for one in self.strays)))

    def with_problems(self, problems: Mapping[str, str]) -> "Found":
        """The same files; those at the paths in ``problems`` have this problem, unless they have another."""
        if not problems:
            return self
        added = pa.array(map(problems.get, self.rows["path"].to_pylist()), pa.string())
        index = self.rows.schema.get_field_index("problem")
        return replace(
            self, rows=self.rows.set_column(index, "problem", pc.coalesce(self.rows["problem"], added)).cast(SCHEMA)
        )

    def placed(self) -> list[Placed]:
        """What decides which row-level deletes apply to each of these files."""
        strays = (Placed(one.place, one.path, one.data_sequence_number) for one in self.strays)
        return [*_placed(self.rows), *strays]

    def arrays(
        self, commits: Mapping[int, CommitClock], deletes: Deletes, times_of_commits: bool, levels_apart: bool
    ) -> Arrays:
        """The segments of the snapshot that lists these files.

        ``commits`` holds the ``CommitClock`` of each unexpired snapshot, by id; ``levels_apart`` means the same as in
        ``ColumnRoles``. With ``times_of_commits``, a record has the time of its commit, as under Kafka's LogAppendTime;
        if that commit's snapshot has expired, the record has the time of the oldest known commit.
        """
        count = self.rows.num_rows
        dated = _dated(self.rows, commits)
        columns = {name: self.rows[name] for name in SCHEMA.names if name in arrays.SCHEMA.names} | dated
        if times_of_commits:
            forgotten = min((commit.at_ms for commit in commits.values()), default=0)
            columns["oldest_ms"] = columns["newest_ms"] = pc.fill_null(dated["committed_ms"], forgotten)
        columns |= _reached(self.rows, deletes, levels_apart)
        columns["copies"] = pa.array(np.ones(count, dtype=np.int64))
        return Arrays.of_rows(_once(pa.table([columns[name] for name in arrays.SCHEMA.names], schema=arrays.SCHEMA)))


def _dated(rows: pa.Table, commits: Mapping[int, CommitClock]) -> dict[str, pa.Array]:
    """Facts of the commit that added each of ``rows``, as columns; the time is null if the snapshot has expired."""
    known = list(commits.values())
    snapshots = rows["snapshot_id"]
    places = pc.index_in(snapshots.combine_chunks(), pa.array(list(commits), pa.int64()))

    def column(values: Iterable[int | bool], kind: pa.DataType) -> pa.Array:
        return pa.array(list(values), kind).take(places)

    return {
        "committed_ms": column((commit.at_ms for commit in known), pa.int64()),
        "by_firn": column((commit.by_firn and not commit.erases for commit in known), pa.bool_()).fill_null(False),  # noqa: FBT003  # Arrow's
        "whole": _whole(rows, commits, column((commit.whole for commit in known), pa.bool_())),
    }


def _whole(rows: pa.Table, commits: Mapping[int, CommitClock], whole: pa.Array) -> pa.Array:
    """``whole``, but False for rows that a commit of several plans added to topic partitions with waiting segments."""
    for snapshot_id, commit in commits.items():
        if commit.waiting_topic_partitions:
            own = pc.equal(rows["snapshot_id"], snapshot_id)
            names = pc.binary_join_element_wise(rows["topic"], pc.cast(rows["partition"], pa.string()), "-")
            held = pc.is_in(names, value_set=pa.array(sorted(commit.waiting_topic_partitions)))
            whole = pc.if_else(own, pc.invert(held), whole)
    return pc.fill_null(whole, False)  # noqa: FBT003  # Arrow's


def _reached(rows: pa.Table, deletes: Deletes, levels_apart: bool) -> dict[str, pa.Array]:
    """Facts, as columns, of the row-level deletes that may apply to each of ``rows``; ``hidden`` <= ``records``."""
    numbers: Ints = np.zeros((rows.num_rows, len(_OF_DELETES)), dtype=np.int64)
    if deletes.any and rows.num_rows:
        numbers[:] = list(map(deletes.totals, _placed(rows)))
    columns = {name: numbers[:, place] for place, name in enumerate(_OF_DELETES)}
    is_unknown = columns["equality_deletes"] > 0
    columns["hidden"] = np.minimum(columns["hidden"], rows["records"].to_numpy())
    columns[_HOLDING] = columns["equality_deletes"] if levels_apart else np.zeros(rows.num_rows, dtype=np.int64)
    return {name: pa.array(values, mask=is_unknown if name == "hidden" else None) for name, values in columns.items()}


def _placed(rows: pa.Table) -> Iterator[Placed]:
    return map(Placed, *(rows[name].to_pylist() for name in ("place", "path", "data_sequence_number")))


def _once(rows: pa.Table) -> pa.Table:
    """``rows`` with a single row for a file that the table lists more than once."""
    paths = rows["path"].combine_chunks()
    counts = pc.value_counts(paths)
    again = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    if not len(again):
        return rows
    twice = pc.is_in(paths, again)
    repeated = Arrays.of_rows(rows.filter(twice))
    merged = _unambiguous(_merged(segment for own in repeated.values() for segment in own))
    return pa.concat_tables([rows.filter(pc.invert(twice)), arrays.rows(merged)])


def _merged(segments: Iterable[Segment]) -> Collection[Segment]:
    """Merge all listings of a file under the same topic partition and level into one segment, oldest listing first."""
    merged: dict[tuple[str, TopicPartition, int], Segment] = {}
    for segment in sorted(segments, key=lambda segment: segment.sequence_number):
        key = (segment.path, segment.topic_partition, segment.level)
        merged[key] = _copied(merged[key], segment) if key in merged else segment
    return merged.values()


def _copied(first: Segment, again: Segment) -> Segment:
    """One segment for a file that the table lists more than once, for example after a sink has repeated a commit.

    Plans always take all copies together, because readers see the records of every copy.
    """
    return replace(
        first,
        records=first.records + again.records,
        bytes=first.bytes + again.bytes,
        data_bytes=first.data_bytes + again.data_bytes,
        tombstones=None if first.tombstones is None else first.tombstones + (again.tombstones or 0),
        null_keys=first.null_keys + again.null_keys,
        stamped=first.stamped + again.stamped,
        sequence_number=min(first.sequence_number, again.sequence_number),
        row_deletes=max(first.row_deletes, again.row_deletes),
        holding_deletes=max(first.holding_deletes, again.holding_deletes),
        hidden=None if first.hidden is None or again.hidden is None else first.hidden + again.hidden,
        deletes=max(first.deletes, again.deletes),
        equality_deletes=max(first.equality_deletes, again.equality_deletes),
        copies=first.copies + again.copies,
    )


def _unambiguous(segments: Collection[Segment]) -> Iterator[Segment]:
    """``segments``, with a problem for each file that is listed under several topic partitions or levels."""
    times = Counter(segment.path for segment in segments)
    for segment in segments:
        if times[segment.path] == 1:
            yield segment
        else:
            yield replace(segment, problem="is also listed under other partition values; allowed: one set of values")
