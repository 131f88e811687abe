"""C27: what a writer deletes by equality is gone, wherever Firn has put it; else the topic partition is named."""

import pytest

from infra.foreign.row_deletes import add, equality_file
from tests.support.scenario import Scenario


@pytest.mark.xfail(strict=True, reason="an equality delete never reaches records that were cleaned, nobody is told")
@pytest.mark.parametrize("partitioned_anew", [False, True], ids=["by level", "partitioned anew"])
def test_c27_a_delete_in_a_former_partition_reaches_what_was_cleaned(
    scenario: Scenario, partitioned_anew: bool
) -> None:
    """Writers know the partition of landed records only, or the partitioning that the table had."""
    scenario.answer("upserted" if partitioned_anew else "create")
    scenario.answer("append a=1 b=1 | a=2 c=1")
    former = scenario.loaded()
    if partitioned_anew:
        scenario.answer("alter by timestampType")
    scenario.answer("full!")
    values = ("orders", 0) if partitioned_anew else ("orders", 0, None)
    add(scenario.opened.lake, scenario.name, [equality_file(former, ["key"], [(b"a",)], former.spec().spec_id, values)])
    scenario.answer("at 1d")
    scenario.answer("run")
    (part,) = scenario.table.status().partitions
    assert part.blockers or not any(row["key"] == b"a" for row in scenario.rows())
