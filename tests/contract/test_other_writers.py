"""What other writers look up in snapshot summaries gives the same after a publication and an expiry of Firn, and what
they delete by equality is gone or named (C27)."""

from collections.abc import Iterator

import pytest

from infra.foreign.row_deletes import add, equality_file
from tests.support.lookups import WRITERS, Summary, Writer
from tests.support.scenario import Scenario

COMMIT = 42
REDPANDA = "Redpanda"
"""It keeps a tag on its newest commit."""


def line_of(scenario: Scenario) -> Iterator[Summary]:
    """The summaries from main's head back to the first snapshot whose parent has expired."""
    table = scenario.loaded()
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot.summary.additional_properties if snapshot.summary else {}
        snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id or 0)


@pytest.mark.parametrize(
    "writer",
    [
        pytest.param(one, id=one.name, marks=[] if one.name in (REDPANDA, "Flink") else [pytest.mark.nightly])
        for one in WRITERS
    ],
)
def test_neither_a_publication_nor_an_expiry_hides_a_writers_progress(scenario: Scenario, writer: Writer) -> None:
    scenario.answer("land a=1 b=1")
    (records,) = scenario.batches("a=2")
    scenario.loaded().append(scenario.foreign_rows(records), snapshot_properties=writer.properties(COMMIT))
    if writer.name == REDPANDA:
        scenario.answer("ref tag redpanda.tag")
    scenario.answer("full!")
    assert writer.look_up(line_of(scenario)) == str(COMMIT)
    scenario.play("append c=1 | c=2", "full!", "later 6d", "maintain")
    assert writer.look_up(line_of(scenario)) == str(COMMIT)


@pytest.mark.parametrize(
    "claimed",
    [
        {"kafka.connect.offsets": "{}", "firn.progress-ms": "9" * 5000},
        {"kafka.connect.offsets": "{}", "firn.progress-ms": "9" * 30},
        {"redpanda.x": "[" * 200_000},
        {"source-snapshot-id": "9" * 5000},
    ],
    ids=lambda one: "".join(one),
)
def test_a_summary_that_nobody_can_read_ends_no_work_and_is_not_kept_for_ever(
    scenario: Scenario, claimed: dict[str, str]
) -> None:
    """What a sink said a month ago goes with its snapshot, whatever it claims."""
    scenario.answer("land a=1 a=2")
    (records,) = scenario.batches("b=1")
    scenario.loaded().append(scenario.foreign_rows(records), snapshot_properties=claimed)
    assert scenario.answer("full!") == ["2 to 1 segments, 3 to 2 records; superseded 1"]
    scenario.play("append c=1", "later 40d", "maintain")
    newest = next(line_of(scenario))
    assert not newest.keys() & {"kafka.connect.offsets"}
    assert scenario.answer("status")[0].startswith("orders-0: ")


@pytest.mark.parametrize("partitioned_anew", [False, True], ids=["by level", "partitioned anew"])
def test_c27_a_delete_in_a_former_partition_reaches_what_was_cleaned(
    scenario: Scenario, partitioned_anew: bool
) -> None:
    """Writers know the partition of landed records only, or the partitioning that the table had."""
    scenario.play("upserted" if partitioned_anew else "create", "append a=1 b=1 | a=2 c=1")
    former = scenario.loaded()
    if partitioned_anew:
        scenario.answer("alter by timestampType")
    scenario.answer("full!")
    values = ("orders", 0) if partitioned_anew else ("orders", 0, None)
    add(scenario.opened.lake, scenario.name, [equality_file(former, ["key"], [(b"a",)], former.spec().spec_id, values)])
    scenario.play("at 1d", "run")
    (part,) = scenario.table.status().partitions
    assert part.blockers or not any(row["key"] == b"a" for row in scenario.rows())
