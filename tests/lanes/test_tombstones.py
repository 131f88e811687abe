"""Tombstones go in two stages, when it is safe and not before (C7, C8, C9, KIP-534)."""

import pytest

from firnlake.compact.compact import compact
from firnlake.errors import ConflictError
from tests.support.publishing import publish
from tests.support.topics import DAY, NOW, Topic, updates

HISTORY = updates("a=1", "b=1", "a=", "c=1")


def test_c8_c9_stamped_by_the_first_cleaning_gone_after_the_horizon(topic: Topic) -> None:
    topic.land(HISTORY).clean("full")
    assert topic.offsets() == [1, 2, 3]
    assert topic.horizons() == {2: NOW + DAY}
    topic.clean("full", NOW + DAY - 1, force=True)
    assert topic.offsets() == [1, 2, 3]
    assert topic.horizons() == {2: NOW + DAY}
    counts = topic.clean("full", NOW + DAY, force=True)
    assert topic.offsets() == [1, 3]
    assert [one.tombstones_removed for one in counts] == [1]


def test_c9_never_by_the_first_cleaning(topic: Topic) -> None:
    topic.create(delete_retention_ms="0").land(HISTORY).clean("full")
    assert topic.offsets() == [1, 2, 3]
    topic.clean("full", force=True)
    assert topic.offsets() == [1, 3]


def test_c9_a_horizon_is_not_moved_by_later_configs(topic: Topic) -> None:
    topic.land(HISTORY).clean("full")
    with topic.lake.table(topic.table).transaction() as change:
        change.set_properties({"firn.delete.retention.ms": str(100 * DAY)})
    topic.clean("full", NOW + 1, force=True)
    assert topic.horizons() == {2: NOW + DAY}


def test_c7_a_tombstone_above_an_older_segment_is_not_stamped(topic: Topic) -> None:
    """The clean lane sees merged segments only: the tail below them can hold an older value."""
    topic.land(updates("a=1", "z=1")).clean("full")
    topic.land(*(updates("a=", f"k{n}=1", start=n) for n in range(2, 10, 2)))
    topic.clean("merge")
    topic.clean("clean")
    assert topic.offsets() == [0, 1, 3, 5, 7, 8, 9]
    assert topic.horizons() == {}
    topic.clean("full", force=True)
    assert topic.horizons() == {8: NOW + DAY}


def test_c9_a_late_older_record_starts_the_wait_again(topic: Topic) -> None:
    """The tombstone outlives in a commit what it supersedes (C2), and a deleted value never comes back."""
    topic.land(updates("b=1"), updates("a=", "c=1", start=5)).clean("full")
    assert topic.horizons() == {5: NOW + DAY}
    topic.land(updates("a=late", start=2))
    counts = topic.clean("full", NOW + 2 * DAY, force=True)
    assert topic.offsets() == [0, 5, 6]
    assert topic.horizons() == {5: NOW + 3 * DAY}
    assert [(one.superseded, one.tombstones_removed) for one in counts] == [(1, 0)]
    topic.clean("full", NOW + 3 * DAY, force=True)
    assert topic.offsets() == [0, 6]


def test_c9_a_late_segment_between_plan_and_publish_blocks_the_removal(topic: Topic) -> None:
    topic.land(updates("b=1", "a=", "c=1", start=3)).clean("full")
    stages = topic.validated(topic.plans("full", NOW + 2 * DAY, force=True))
    topic.land(updates("a=late", start=0))
    with pytest.raises(ConflictError, match="with lower offsets has landed since"):
        publish(topic.lake, stages[0])
    assert topic.offsets() == [0, 3, 4, 5]


def test_c9_a_late_segment_in_the_plan_of_others_does_not_matter(topic: Topic) -> None:
    """Nothing is removed by this plan, so what lands beside it can't be brought back."""
    topic.land(HISTORY)
    stages = topic.validated(topic.plans("full"))
    topic.land(updates("d=1", start=4))
    publish(topic.lake, stages[0])
    assert topic.offsets() == [1, 2, 3, 4]


def test_a_foreign_stamp_on_a_landed_record_counts_for_nothing(topic: Topic) -> None:
    """Any writer may put anything into delete_horizon: only what a cleaning stamped is believed (C9)."""
    topic.create(delete_retention_ms="0")
    topic.append(HISTORY, horizon_ms=0)
    outcomes = compact(topic.lake, topic.plans("full"), topic.engine)
    assert [outcome.error for outcome in outcomes] == [None]
    topic.clean("full")
    assert topic.offsets() == [1, 2, 3]
    assert topic.horizons() == {2: NOW}
