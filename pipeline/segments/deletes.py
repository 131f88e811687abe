"""Which row-level deletes may apply to which data files (Iceberg spec, "Scan planning")."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable

from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry

from pipeline.segments.facts import partition_values

_Delete = tuple[DataFileContent, int]


class RowDeletes:
    """The row-level deletes of a snapshot.

    Partition and sequence number decide; a delete file that names other data files in its bounds is counted too,
    because a false alarm costs a wait and a missed delete would bring deleted rows back.
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
        """Whether there are row-level deletes at all."""

    def reaching(self, place: str, sequence_number: int) -> int:
        """How many may apply to a data file at ``place`` (``place_of``) with this data sequence number."""
        own = self._own.get(place)
        return self._everywhere.reaching(sequence_number) + (own.reaching(sequence_number) if own else 0)


def place_of(file: DataFile) -> str:
    """Partition spec and partition values of ``file``: what a delete file and the data files it reaches agree in."""
    return f"{file.spec_id} {partition_values(file)!r}"


class _Numbers:
    """Sequence numbers of some deletes, sorted."""

    def __init__(self, deletes: Iterable[_Delete]) -> None:
        ordered = sorted(deletes, key=lambda delete: delete[1])
        self._all = [number for _, number in ordered]
        self._of_positions = [number for content, number in ordered if content == DataFileContent.POSITION_DELETES]

    def reaching(self, number: int) -> int:
        """Those that are newer; position deletes reach what was added with them as well."""
        newer = len(self._all) - bisect_right(self._all, number)
        return newer + bisect_right(self._of_positions, number) - bisect_left(self._of_positions, number)
