"""Matches row-level deletes with the data files they may apply to (Iceberg spec, "Scan planning")."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable

from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry

from pipeline.segments.listed import partition_values, place

_Delete = tuple[DataFileContent, int]


class RowDeletes:
    """The row-level deletes of a snapshot.

    Partition and sequence number decide. A delete file whose bounds name other data files counts too: a false alarm
    costs a wait, a missed delete would restore deleted rows.
    """

    def __init__(self, found: Iterable[ManifestEntry]) -> None:
        own: dict[str, list[_Delete]] = defaultdict(list)
        everywhere = []
        for entry in found:
            delete = (entry.data_file.content, entry.sequence_number or 0)
            if partition_values(entry.data_file):
                own[place_of(entry.data_file)].append(delete)
            else:
                everywhere.append(delete)
        self._everywhere = _Numbers(everywhere)
        self._own = {place: _Numbers(deletes) for place, deletes in own.items()}
        self.any = bool(own or everywhere)
        """True when there are row-level deletes at all."""

    def reaching(self, place: str, sequence_number: int) -> int:
        """Number of deletes that may apply to a data file with this ``place_of`` and data sequence number."""
        own = self._own.get(place)
        return self._everywhere.reaching(sequence_number) + (own.reaching(sequence_number) if own else 0)


def place_of(file: DataFile) -> str:
    """Partition spec and partition values of ``file``, equal for a delete file and the data files it reaches."""
    return place(file.spec_id, partition_values(file))


class _Numbers:
    """Sorted sequence numbers of some deletes."""

    def __init__(self, deletes: Iterable[_Delete]) -> None:
        ordered = sorted(deletes, key=lambda delete: delete[1])
        self._all = [number for _, number in ordered]
        self._of_positions = [number for content, number in ordered if content == DataFileContent.POSITION_DELETES]

    def reaching(self, number: int) -> int:
        """Number of deletes newer than ``number``; position deletes also reach files of their own commit."""
        newer = len(self._all) - bisect_right(self._all, number)
        return newer + bisect_right(self._of_positions, number) - bisect_left(self._of_positions, number)
