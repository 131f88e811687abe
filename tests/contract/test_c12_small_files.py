"""C12: the footers of small files count in no ratio, so a head of many small files is as dirty as its records."""

import os

from tests.support.scenario import Scenario


def test_many_small_files_are_as_dirty_as_their_records(scenario: Scenario) -> None:
    """By the sizes of files, a head of a fifth of the records would be two thirds of the table."""

    def records(start: int, end: int) -> str:
        return " ".join(f"k{number:06}=0x{os.urandom(100).hex()}@{number}" for number in range(start, end))

    scenario.answer("create full.interval.ms=-1")
    scenario.answer(f"land {records(0, 800)}")
    scenario.answer("full!")
    scenario.answer("append " + " | ".join(records(start, start + 5) for start in range(800, 1000, 5)))
    sizes = [row["file_size_in_bytes"] for row in scenario.loaded().inspect.data_files().to_pylist()]
    assert sum(sizes) - max(sizes) > 0.65 * sum(sizes)
    (part,) = scenario.table.status().partitions
    assert part.dirty_ratio < 0.5
    assert scenario.answer("full") == ["nothing due"]
