"""What other writers leave in a table blocks the topic partitions that it is about, and no others (C7, C20)."""

from typing import Any

import pytest
from pyiceberg.typedef import Record

from firnlake.iceberg.catalog import Lake
from firnlake.inspect.status.document import PartitionStatus
from firnlake.inspect.status.gather import status_of
from firnlake.job.lane import Lane
from firnlake.plan.make import plan_table
from infra.foreign.files import on_disk
from tests.support.foreign import append_again, written_under_no_spec
from tests.support.lakes import NOW, TABLE, append, append_file, row

pytestmark = pytest.mark.usefixtures("table")
NO_METRICS = {"write.metadata.metrics.default": "none", "write.metadata.metrics.column.offset": "none"}
LONG = "a-topic-with-a-long-name"


def partitions(lake: Lake) -> dict[str, PartitionStatus]:
    return {one.name: one for one in status_of(lake, TABLE, NOW).partitions}


def planned(lake: Lake) -> dict[str, int | None]:
    """The topic partitions that lane full takes, and the offset from which tombstones are kept."""
    plans = plan_table(lake, TABLE, Lane.FULL, NOW, force=True)
    return {str(plan.topic_partition): plan.clean_below for plan in plans}


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"offset": None}, "has NULLs in column offset (1 of 2); allowed: none"),
        ({"timestamp": None}, "has NULLs in column timestamp (1 of 2); allowed: none"),
        ({"offset": -1}, "has offset -1; allowed: 0 or more"),
        ({"level": 4}, "has level 4; allowed: NULL, 0, 1, 2, 3"),
        ({"level": -1}, "has level -1; allowed: NULL, 0, 1, 2, 3"),
        ({"partition": -1}, "has partition -1; allowed: 0 or more"),
    ],
)
def test_c20_what_is_wrong_with_a_segment_blocks_its_topic_partition_only(
    lake: Lake, wrong: dict[str, Any], problem: str
) -> None:
    append(lake, [row(0, partition=1)])
    both = {name: value for name, value in wrong.items() if name in ("level", "partition")}
    path = append_file(lake, [row(1) | wrong, row(2) | both])
    found = partitions(lake)
    (blocker,) = found[f"orders-{wrong.get('partition', 0)}"].blockers
    assert problem in blocker
    assert path in blocker
    assert (found["orders-1"].blockers, planned(lake)) == ((), {"orders-1": None})


def test_c20_levels_that_no_partition_field_keeps_apart_and_files_in_two_partitions_block(lake: Lake) -> None:
    append(lake, [row(0), row(0, partition=1), row(0, partition=9)])
    written_under_no_spec(lake, [row(7), row(9, level=3)])
    append_again(lake, append_file(lake, [row(1, partition=1)]), Record("orders", 2, None))
    found = partitions(lake)
    assert "which does not separate levels" in found["orders-0"].blockers[0]
    assert {name: bool(one.blockers) for name, one in found.items()} == {
        "orders-0": True,
        "orders-1": True,
        "orders-2": True,
        "orders-9": False,
    }


def test_a_file_of_another_spec_is_a_landed_segment_where_its_bounds_prove_one_topic_partition(lake: Lake) -> None:
    append(lake, [row(0), row(0, partition=1)])
    written_under_no_spec(lake, [row(7), row(9)])
    assert [(one.name, one.blockers) for one in partitions(lake).values()] == [("orders-0", ()), ("orders-1", ())]
    assert planned(lake) == {"orders-0": None, "orders-1": None}


@pytest.mark.parametrize(
    ("rows", "properties", "keeps"),
    [
        ([row(4), row(6, partition=3)], {}, {"orders-0": 4, "orders-1": 4}),
        (
            [row(4), row(6, partition=3)],
            NO_METRICS,
            dict.fromkeys(("orders-0", "orders-1", "orders-7", LONG + "-0"), 0),
        ),
        ([row(4, topic=LONG), row(5, topic=LONG, partition=1)], {}, {LONG + "-0": 4}),
        ([row(4), row(5, topic=None)], {}, {"orders-0": 4}),
        ([row(4, topic=None), row(5, topic=None)], {}, {}),
    ],
    ids=["bounds", "no bounds", "a topic cut short", "with and without a topic", "nobody's"],
)
def test_c7_a_file_of_several_topic_partitions_keeps_tombstones_of_those_that_it_may_hold(
    lake: Lake, rows: list[dict[str, Any]], properties: dict[str, str], keeps: dict[str, int]
) -> None:
    append(lake, [row(9), row(9, partition=1), row(9, partition=7), row(9, topic=LONG)])
    path = written_under_no_spec(lake, rows, **properties)
    if properties:
        on_disk(path).unlink()  # nor does its footer tell
    assert {name: bound for name, bound in planned(lake).items() if bound is not None} == keeps
    told = f"segment {path} may hold records from offset {{}} on: tombstones from there on are kept"
    found = partitions(lake)
    assert {name: one.blockers for name, one in found.items() if one.blockers} == {
        name: (told.format(bound),) for name, bound in keeps.items()
    }
    assert all(one.due for one in found.values())
    (stray,) = status_of(lake, TABLE, NOW).details().strays
    assert path in stray


@pytest.mark.parametrize("column", ["topic", "partition"])
def test_c20_a_record_without_topic_or_partition_is_nobodys_and_holds_up_nobody(lake: Lake, column: str) -> None:
    append(lake, [row(5)])
    append_file(lake, [row(0) | {column: None}])
    (stray,) = status_of(lake, TABLE, NOW).details().strays
    assert "allowed: a topic and a partition in every record" in stray
    assert planned(lake) == {"orders-0": None}
