"""What a writer deletes by equality is gone, wherever Firn has put it; else the topic partition is named (C27)."""

import pytest

from firnlake.engine.engine import Engine
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.status.gather import status_of
from infra.foreign.row_deletes import add, equality_file
from tests.support.row_deletes import visible_rows
from tests.support.topics import DAY, NOW, Topic, updates
from tests.support.upserts import Row, upserts


def blocked(topic: Topic) -> list[str]:
    """What `firn status` names as blocking a topic partition of the table."""
    status = status_of(topic.lake, topic.table, NOW + DAY)
    return [blocker for part in status.partitions for blocker in part.blockers]


@pytest.mark.xfail(
    strict=True, reason="R16: an equality delete never reaches records that were cleaned, nobody is told"
)
def test_r16_a_delete_that_lands_after_a_cleaning_reaches_what_was_cleaned(topic: Topic) -> None:
    """The table is partitioned by level: its writers know the partition of landed records only."""
    topic.land(updates("a=1", "b=1"), updates("a=2", "c=1", start=2)).clean("full")
    table = topic.lake.table(topic.table)
    add(topic.lake, topic.table, [equality_file(table, ["key"], [(b"a",)], table.spec().spec_id, ("orders", 0, None))])
    topic.run(NOW + DAY)
    assert b"a" not in {row["key"] for row in visible_rows(topic.lake.table(topic.table))} or blocked(topic)


@pytest.mark.xfail(
    strict=True, reason="R16: after a change of the partition spec a cleaning moves records out of reach"
)
def test_r16_a_delete_of_a_writer_that_knows_the_former_partitioning_reaches_what_was_cleaned(
    lake: Lake, engine: Engine
) -> None:
    table = upserts(lake, engine)
    table.append(Row(0, 1), Row(1, 2))
    table.append(Row(2, 1), Row(3, 3))
    former = lake.table(table.topic.table)
    with lake.table(table.topic.table).update_spec() as update:
        update.add_identity("city")
    table.topic.clean("full", force=True)
    add(lake, table.topic.table, [equality_file(former, ["id"], [(1,)], former.spec().spec_id, (0,))])
    table.topic.run(NOW + DAY)
    assert 1 not in {row.id for row in table.seen()} or blocked(table.topic)
