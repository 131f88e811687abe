"""Which delete files reach which data files, and which of them a commit leaves without any (C27)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.typedef import Record as Values
from pyiceberg.types import StringType

from firnlake.iceberg.needless_deletes import DataEntry, EqualityReach, needless
from firnlake.iceberg.row_deletes import FILE_PATH, DeleteFile, RowDeletes, digest_of_all, place_of

PARTED = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"), spec_id=1)
VOID = PartitionSpec(PartitionField(1, 1000, VoidTransform(), "p"), spec_id=2)
SPECS = {0: UNPARTITIONED_PARTITION_SPEC, 1: PARTED, 2: VOID}
PLACES: Sequence[tuple[int, tuple[Any, ...]]] = ((0, ()), (1, ("a",)), (1, ("b",)), (1, (None,)), (2, (None,)))
PATHS = ("d0", "d1", "d2", "d3")


@dataclass(frozen=True)
class Listed:
    """A data or delete file as drawn; ``names`` are the data files that a position delete's bounds span."""

    path: str
    place: tuple[int, tuple[Any, ...]]
    number: int
    equality: bool = False
    names: tuple[str, str] | None = None
    ids: tuple[int, ...] | None = (1,)

    @property
    def entry(self) -> ManifestEntry:
        bounds: dict[str, Any] = {}
        if self.names:
            low, high = (to_bytes(StringType(), name) for name in self.names)
            bounds = {"lower_bounds": {FILE_PATH: low}, "upper_bounds": {FILE_PATH: high}}
        is_delete = self.path.startswith("x")
        kind = DataFileContent.EQUALITY_DELETES if self.equality else DataFileContent.POSITION_DELETES
        file = DataFile.from_args(
            content=kind if is_delete else DataFileContent.DATA,
            file_path=self.path,
            file_format=FileFormat.PARQUET,
            partition=Values(*self.place[1]),
            record_count=3,
            file_size_in_bytes=1,
            equality_ids=list(self.ids) if self.equality and self.ids else None,
            **bounds,
        )
        file.spec_id = self.place[0]
        return ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED, snapshot_id=1, sequence_number=self.number, data_file=file
        )

    def reaches(self, data: "Listed") -> bool:
        """The rule of the specification, and of Iceberg's own readers for a delete that names one file."""
        if self.equality:
            everywhere = self.place[0] in (0, 2)
            return data.number < self.number and (everywhere or self.place == data.place)
        if data.number > self.number:
            return False
        if self.names and self.names[0] == self.names[1]:
            return data.path == self.names[0]
        return self.place == data.place


data_files = st.lists(
    st.builds(Listed, st.sampled_from(PATHS), st.sampled_from(PLACES), st.integers(1, 6)),
    max_size=4,
    unique_by=lambda one: one.path,
)
names = st.none() | st.tuples(st.sampled_from(PATHS), st.sampled_from(PATHS)).map(lambda two: (min(two), max(two)))
delete_files = st.lists(
    st.builds(
        Listed, st.integers(0, 99).map("x{}".format), st.sampled_from(PLACES), st.integers(1, 6), st.booleans(), names
    ),
    max_size=6,
    unique_by=lambda one: one.path,
)


@given(data_files, delete_files)
def test_figures_and_files_are_those_of_the_specification(data: list[Listed], deletes: list[Listed]) -> None:
    found = RowDeletes([one.entry for one in deletes], SPECS)
    assert found.any == bool(deletes)
    for file in data:
        expected = sorted((one for one in deletes if one.reaches(file)), key=lambda one: (one.number, one.path))
        place = place_of(file.entry.data_file)
        listed = found.files(place, file.path, file.number)
        assert [one.path for one in listed] == [one.path for one in expected]
        reach = found.reaching(place, file.path, file.number)
        equality = [one for one in expected if one.equality]
        assert (reach.files, reach.equality) == (len(expected), len(equality))
        assert reach.hidden == 3 * (len(expected) - len(equality))
        assert reach.digest == digest_of_all(listed)
        assert (reach.digest == 0) == (not expected)


@given(data_files, delete_files, st.sets(st.sampled_from(PATHS)), st.integers(1, 7))
def test_what_reaches_nothing_any_more_goes_and_nothing_else(
    data: list[Listed], deletes: list[Listed], going: set[str], number: int
) -> None:
    """Files that the commit adds have a number of their own; position deletes never name them."""
    removed = [one for one in data if one.path in going]
    left = [one for one in data if one.path not in going]
    added = [Listed("new", one.place, number) for one in removed]
    found = needless(
        [one.entry for one in deletes],
        SPECS,
        [DataEntry.of(one.entry) for one in removed],
        [DataEntry.of(one.entry) for one in left],
        [DataEntry.of(one.entry) for one in added],
    )
    assert found == {
        one.path
        for one in deletes
        if any(one.reaches(file) for file in removed)
        and not any(one.reaches(file) for file in (*left, *(added if one.equality else ())))
    }


@given(data_files, delete_files, st.sets(st.sampled_from(PATHS)))
def test_c27_a_plan_is_made_where_a_delete_file_will_leave_and_nowhere_else(
    data: list[Listed], deletes: list[Listed], taken: set[str]
) -> None:
    """Sense tells from metadata alone what the commit will decide."""
    entries = [one.entry for one in deletes]
    reach = EqualityReach.of(
        RowDeletes(entries, SPECS), [(one.path, place_of(one.entry.data_file), one.number) for one in data]
    )
    leaving = needless(entries, SPECS, [], [DataEntry.of(one.entry) for one in data], [], dict.fromkeys(taken, 6))
    going = [one for one in deletes if one.path in leaving]
    assert reach.relieved(taken) == {
        file.path for file in data if file.path in taken and any(one.reaches(file) for one in going)
    }


def test_equality_deletes_without_ids_are_no_position_deletes() -> None:
    delete = DeleteFile.of(Listed("x0", PLACES[1], 1, equality=True, ids=None).entry)
    assert delete.is_equality
    assert delete.equality_ids == ()
