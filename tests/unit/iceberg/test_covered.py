"""Equality delete files leave once data files have positions in their place: none too early, none too late (C27)."""

from hypothesis import given
from hypothesis import strategies as st

from firnlake.iceberg.needless_deletes import DataEntry, EqualityReach, needless
from firnlake.iceberg.row_deletes import RowDeletes, place_of
from tests.unit.iceberg.test_row_deletes import PATHS, SPECS, Listed, data_files, delete_files


@given(data_files, delete_files, st.dictionaries(st.sampled_from(PATHS), st.integers(1, 6)))
def test_c27_a_covered_file_needs_no_equality_delete_that_its_plan_knew(
    data: list[Listed], deletes: list[Listed], covered: dict[str, int]
) -> None:
    leaving = needless(
        [one.entry for one in deletes], SPECS, [], [DataEntry.of(one.entry) for one in data], [], covered
    )

    def is_covered(file: Listed, delete: Listed) -> bool:
        return delete.number <= covered.get(file.path, 0)

    assert leaving == {
        one.path
        for one in deletes
        if one.equality
        and any(one.reaches(file) and is_covered(file, one) for file in data)
        and not any(one.reaches(file) and not is_covered(file, one) for file in data)
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
