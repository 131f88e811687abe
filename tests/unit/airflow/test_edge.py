"""What a trigger has announced of one table, across looks and across restarts."""

import json
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from firnlake.airflow.edge import Edge
from firnlake.airflow.watch import Look, Place

PLACES = st.sets(st.tuples(st.sampled_from(["merge", "full"]), st.text(max_size=3), st.integers(0, 3)))


def look(places: Iterable[Place]) -> Look:
    return Look("t.x", 1, {place: " ".join(map(str, place)) for place in places})


@given(st.lists(PLACES, max_size=5))
def test_r19_a_restart_between_two_looks_changes_nothing(due: list[set[Place]]) -> None:
    one, restarted = Edge(), Edge()
    for places in due:
        assert restarted.crossed(look(places)) == one.crossed(look(places))
        restarted = Edge.of(json.loads(json.dumps(restarted.memory)))


def test_what_was_done_and_becomes_due_again_is_announced_again() -> None:
    edge, merge = Edge(), ("merge", "orders", 3)
    assert edge.crossed(look([merge])) == ["merge orders 3"]
    assert edge.crossed(look([merge])) == []
    assert edge.crossed(look([])) == []
    assert edge.crossed(look([merge, ("full", "orders", 3)])) == ["merge orders 3", "full orders 3"]
