"""Random histories of row-level deletes between cleanings of any lane (C2, C3, C4, C27)."""

import itertools
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from firnlake.engine.engine import Engine
from firnlake.iceberg.catalog import Lake
from tests.support.examples import bounded
from tests.support.row_deletes import delete
from tests.support.topics import DAY, NOW, Record, Topic

KEYS = [b"", b"a", b"b", b"c"]
_numbers = itertools.count()

steps = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from([None, b"x"])), min_size=1, max_size=4),
        st.lists(st.integers(0, 20), max_size=3),
        st.sampled_from(["merge", "clean", "tier", "full"]),
    ),
    min_size=3,
    max_size=8,
)


@bounded(5)
@given(steps)
def test_c2_c3_c27_what_is_deleted_between_cleanings_of_any_lane_stays_deleted(
    lake: Lake, engine: Engine, history: list[tuple[list[tuple[bytes, bytes | None]], list[int], str]]
) -> None:
    """Whatever is visible is cleaned by the rules, and nothing else is ever seen."""
    topic = Topic(lake, engine, f"deletes.t{next(_numbers)}").create(tier_runs="2", delete_retention_ms="0")
    visible: dict[int, Record] = {}
    landed = 0
    for number, (batch, victims, lane) in enumerate(history):
        records = [Record(offset, key, value) for offset, (key, value) in enumerate(batch, landed)]
        landed += len(records)
        topic.land(records)
        visible |= {one.offset: one for one in records}
        chosen = sorted({sorted(visible)[victim % len(visible)] for victim in victims})
        if chosen:
            delete(topic, *chosen, bounds=number % 2 == 0)
        visible = {offset: one for offset, one in visible.items() if offset not in chosen}
        assert topic.seen() == [visible[offset] for offset in sorted(visible)]
        topic.clean(lane, NOW + number * DAY, force=True)
        visible = after_cleaning(topic, visible)


def after_cleaning(topic: Topic, before: Mapping[int, Record]) -> dict[int, Record]:
    """What readers see now: the newest record of each key that they saw before, and of the others some."""
    seen = {one.offset: one for one in topic.seen()}
    assert seen.items() <= before.items()
    newest = {one.key: one for one in sorted(before.values())}
    assert all(one.offset in seen or one.value is None for one in newest.values())
    assert not before or max(before) in seen, "the log end that readers see stays (C4)"
    return seen
