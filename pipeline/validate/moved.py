"""The data files of a topic partition that a commit in a table's history moved on one branch."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from pipeline.lake.columns import Columns
from pipeline.lake.manifests import Manifests
from pipeline.lake.topic_partition import TopicPartition


@dataclass(frozen=True)
class Moved:
    """Entries of data files that the commit removed, left and added, repeated as listed."""

    removed: Sequence[ManifestEntry]
    stayed: Sequence[ManifestEntry]
    added: Sequence[ManifestEntry]

    @classmethod
    def between(
        cls, table: Table, columns: Columns, before: Snapshot | None, after: Snapshot | None, owner: TopicPartition
    ) -> "Moved":
        """The entries of ``owner`` in ``before`` and ``after``, two snapshots of one branch; None lists nothing."""
        earlier, later = (_listed(table, columns, one, owner) for one in (before, after))
        old, new = ({one.data_file.file_path for one in entries} for entries in (earlier, later))
        return cls(
            [one for one in earlier if one.data_file.file_path not in new],
            [one for one in earlier if one.data_file.file_path in new],
            [one for one in later if one.data_file.file_path not in old],
        )

    def searched(self, sequence_number: int) -> "list[DataFile]":
        """The files that stayed and were added by a snapshot up to ``sequence_number``."""
        return [
            one.data_file
            for one in self.stayed
            if (one.file_sequence_number or one.sequence_number or 0) <= sequence_number
        ]


def files(entries: Sequence[ManifestEntry]) -> list[DataFile]:
    """The data files of ``entries``."""
    return [one.data_file for one in entries]


def _listed(table: Table, columns: Columns, snapshot: Snapshot | None, owner: TopicPartition) -> list[ManifestEntry]:
    manifests = [one for one in snapshot.manifests(table.io) if one.content == ManifestContent.DATA] if snapshot else []
    entries = Manifests(table.io).live(manifests)
    return [one for one in entries if TopicPartition(*columns.owner(table, one.data_file)) == owner]
