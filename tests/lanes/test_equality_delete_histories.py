"""Random histories of upserts by equality deletes, with cleanings of any lane between them (C27)."""

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
from tests.support.upserts import Row, upserts

pytestmark = pytest.mark.nightly


@bounded(3)
@given(histories("merge", "clean", "tier", "full"), st.booleans())
def test_c2_c3_c27_random_histories(lake: Lake, engine: Engine, history: list[Step], partitioned: bool) -> None:
    """Appends, position and equality deletes and cleanings, some while a plan is under way: as in a plain model."""
    table = upserts(lake, engine, partitioned=partitioned, tier_runs="2", delete_retention_ms="0")
    visible: dict[int, Row] = {}
    landed = 0
    for number, (batch, ids, cities, victims, lane, meanwhile) in enumerate(history):
        rows = [Row(seq, id_, city) for seq, (id_, city) in enumerate(batch, landed)]
        landed += len(rows)
        table.append(*rows)
        visible |= {row.seq: row for row in rows}
        chosen = {sorted(visible)[victim % len(visible)] for victim in victims} if visible else set()
        if chosen:
            table.delete_at(*chosen)
        visible = {seq: row for seq, row in visible.items() if seq not in chosen}
        stages = table.topic.validated(table.topic.plans(lane, NOW + number * DAY, force=True)) if meanwhile else []
        if cities:
            table.delete(["city"], *((city,) for city in cities))
        if ids:
            table.delete(["id"], *((id_,) for id_ in ids))
        visible = {seq: row for seq, row in visible.items() if row.id not in ids and row.city not in cities}
        assert table.seen() == [visible[seq] for seq in sorted(visible)]
        for stage in stages:
            # Only a delete by another column than the key is in the way of what supersedes.
            with suppress(ConflictError) if cities else nullcontext():
                publish(table.topic.lake, stage)
        if not meanwhile:
            table.topic.clean(lane, NOW + number * DAY, force=True)
        seen = {row.seq: row for row in table.seen()}
        assert seen.items() <= visible.items(), "nothing comes back"
        newest = {row.id: row for row in sorted(visible.values())}
        assert all(row.seq in seen or row.city is None for row in newest.values())
        if not meanwhile:
            assert not visible or max(visible) in seen
        visible = seen
    table.topic.clean("full", NOW + 100 * DAY, force=True)
    assert len({row.id for row in table.seen()}) == len(table.seen()), "one record per key in the tail"
