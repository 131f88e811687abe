"""C27 in tails of many records: some of their row groups and segments stay as they are, others lose what is hidden."""

from tests.support.scenario import Scenario


def records(start: int, end: int) -> str:
    return " ".join(f"k{number:03}=0x{bytes(range(256)).hex() * 2}" for number in range(start, end))


def offsets(scenario: Scenario) -> list[int]:
    return [row["offset"] for row in scenario.rows()]


def test_c16_c27_places_are_right_where_row_groups_of_the_tail_are_skipped(scenario: Scenario) -> None:
    scenario.answer("create")
    scenario.answer("property write.parquet.row-group-size-bytes=4096")
    scenario.answer(f"land {records(0, 300)}")
    scenario.answer("full!")
    scenario.answer("delete 5 150 151 290")
    scenario.answer("land k152=new k150=new k291=")
    scenario.answer("at 1d")
    scenario.answer("full!")
    assert offsets(scenario) == [one for one in range(303) if one not in {5, 150, 151, 152, 290, 291}]
    assert scenario.answer("deletes") == ["position 0, equality 0"]


def test_c16_c27_tail_segments_with_deletes_do_not_stay_in_place(scenario: Scenario) -> None:
    scenario.answer("create segment.bytes=1024")
    scenario.answer(f"land {records(0, 20)} | {records(20, 40)}")
    scenario.answer("full!")
    before = {path for _, path in scenario.data_files()}
    scenario.answer("delete 0")
    scenario.answer("land new=new")
    scenario.answer("at 1d")
    scenario.answer("full!")
    after = {path for _, path in scenario.data_files()}
    assert before & after
    assert before - after
    assert offsets(scenario) == [*range(1, 41)]
    assert scenario.answer("deletes") == ["position 0, equality 0"]
