"""Random histories of upserts and deletes with lane `convert` among the others (C27)."""

from contextlib import nullcontext, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnlake.engine.engine import Engine
from firnlake.errors import ConflictError
from firnlake.iceberg.catalog import Lake
from tests.support.examples import bounded
from tests.support.publishing import publish
from tests.support.topics import DAY, NOW
from tests.support.upsert_histories import Step, histories
from tests.support.upserts import Row, equality_deletes_left, upserts

pytestmark = pytest.mark.nightly


@bounded(4)
@given(histories("convert", "convert", "merge", "full"), st.booleans())
def test_c2_c3_c27_random_histories(lake: Lake, engine: Engine, history: list[Step], partitioned: bool) -> None:
    """Appends, deletes of both kinds and lanes, some of it while a plan is under way: readers see what a plain model
    says, and after each `convert` no equality delete is left but what landed meanwhile."""
    table = upserts(lake, engine, partitioned=partitioned, position_deletes_max="2", delete_retention_ms="0")
    visible: dict[int, Row] = {}
    landed = 0
    for number, (batch, ids, cities, victims, lane, meanwhile) in enumerate(history):
        rows = [Row(seq, id_, city) for seq, (id_, city) in enumerate(batch, landed)]
        landed += len(rows)
        now = NOW + number * DAY
        stages = table.topic.validated(table.topic.plans(lane, now, force=True)) if meanwhile else []
        table.append(*rows)
        visible |= {row.seq: row for row in rows}
        if cities:
            table.delete(["city"], *((city,) for city in cities))
        if ids:
            table.delete(["id"], *((id_,) for id_ in ids))
        visible = {seq: row for seq, row in visible.items() if row.id not in ids and row.city not in cities}
        if not meanwhile and victims and visible:
            chosen = {sorted(visible)[victim % len(visible)] for victim in victims}
            table.delete_at(*chosen)
            visible = {seq: row for seq, row in visible.items() if seq not in chosen}
        assert table.seen() == [visible[seq] for seq in sorted(visible)]
        for stage in stages:
            # By another column than the key they may hide the newer record of a key alone.
            with suppress(ConflictError) if cities and lane == "full" else nullcontext():
                publish(table.topic.lake, stage)
        if not meanwhile:
            table.topic.clean(lane, now, force=True)
        seen = {row.seq: row for row in table.seen()}
        if lane == "convert":
            assert seen == visible, "nothing goes and nothing comes back"
            assert meanwhile or equality_deletes_left(table) == 0
            assert meanwhile or table.topic.plans("convert", now, force=True) == []
        assert seen.items() <= visible.items()
        visible = seen
    before = table.seen()
    table.topic.clean("convert", NOW + 99 * DAY, force=True)
    assert table.seen() == before
    assert equality_deletes_left(table) == 0
    table.topic.clean("full", NOW + 100 * DAY, force=True)
    assert len({row.id for row in table.seen()}) == len(table.seen())
