"""An adoption that adds columns, but no partition fields, so that more writers go on as before."""

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField
from pyiceberg.transforms import IdentityTransform

from firnlake.engine.engine import Engine
from firnlake.engine.local import LocalEngine
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Choice, adopt
from firnlake.ingest.release import release
from tests.support.adopted import BY_ID, CDC_SCHEMA, EVENTS, EVENTS_SCHEMA, append, change, event, make, segments_of
from tests.support.topics import DAY, LOW_THRESHOLDS, NOW, Topic

KEPT = Choice(("id",), "lsn", tombstone="op = 'd'", keep_partitioning=True)
EVENTS_KEPT = Choice(("entity",), "seq", "at_ms", "source", "shard", "body IS NULL", keep_partitioning=True)


@pytest.fixture
def engine() -> Engine:
    return LocalEngine()


def test_c1_to_c9_the_levels_of_a_table_that_is_not_partitioned(lake: Lake, cdc: str, engine: Engine) -> None:
    topic = Topic(lake, engine, cdc, made=True)

    def written(*changes: dict[str, object]) -> None:
        lake.table(cdc).append(pa.Table.from_pylist(list(changes), schema=CDC_SCHEMA.as_arrow()))

    written(change(1, 1), change(2, 2))
    adopt(lake, cdc, KEPT, LOW_THRESHOLDS)
    written(change(3, 1))
    topic.clean("merge")
    written(change(4, 2, op="d"))
    written(change(5, 3))
    topic.clean("merge")
    topic.clean("clean")
    assert [one.level for one in segments_of(lake, cdc)] == [2]
    topic.clean("full", force=True)
    written(change(6, 3), change(7, 4))
    assert [(one.level, one.records) for one in segments_of(lake, cdc)] == [(3, 3), (0, 2)]
    topic.clean("full", NOW + 2 * DAY, force=True)
    assert sorted(lake.table(cdc).scan().to_arrow()["lsn"].to_pylist()) == [3, 6, 7]
    assert lake.table(cdc).spec().fields == ()


def test_topic_partitions_stay_apart(lake: Lake, engine: Engine) -> None:
    by = [PartitionField(1, 1000, IdentityTransform(), "source"), PartitionField(2, 1001, IdentityTransform(), "shard")]
    make(lake, EVENTS, EVENTS_SCHEMA, *by)
    append(lake, EVENTS, event(0), event(0, shard=1), event(0, source="app"))
    adopt(lake, EVENTS, EVENTS_KEPT)
    append(lake, EVENTS, event(1), event(1, shard=1))
    Topic(lake, engine, EVENTS, made=True).clean("full", force=True)
    found = segments_of(lake, EVENTS).by_partition
    assert {str(one): [(own.level, own.base_offset) for own in owned] for one, owned in found.items()} == {
        "app-0": [(3, 0)],
        "web-0": [(3, 1)],
        "web-1": [(3, 1)],
    }
    assert [field.name for field in lake.table(EVENTS).spec().fields] == ["source", "shard"]


def test_c26_a_table_that_is_not_partitioned_by_what_is_mapped(lake: Lake, events: str) -> None:
    with pytest.raises(
        RefusedError, match=r"is to keep its partitioning, and is not partitioned by source, shard; allo"
    ):
        adopt(lake, events, EVENTS_KEPT)


def test_c26_another_way_of_partitioning_needs_a_release(lake: Lake, cdc: str) -> None:
    adopt(lake, cdc, BY_ID)
    with pytest.raises(
        RefusedError, match="was adopted with partition fields, which can't be kept out now; allowed: no "
    ):
        adopt(lake, cdc, KEPT)
    release(lake, cdc, drop_columns=True)
    adopted = adopt(lake, cdc, KEPT)
    assert (adopted.repeated, adopted.columns.levels_apart) == (False, False)
    assert not adopt(lake, cdc, BY_ID).columns.levels_apart, "said once, it holds"


def test_c20_what_mixes_levels_waits_until_the_table_is_adopted_anew(lake: Lake, cdc: str) -> None:
    adopt(lake, cdc, KEPT)
    append(lake, cdc, change(1, level=3), change(2, level=None))
    assert ["may have several levels" in (one.problem or "") for one in segments_of(lake, cdc)] == [True]
    release(lake, cdc, drop_columns=True)
    assert [(one.level, one.problem) for one in adopt(lake, cdc, KEPT).segments] == [(0, None)]
