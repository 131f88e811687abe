"""Lane tier: runs of similar size become one (C15)."""

import pyarrow as pa

from tests.support.topics import DAY, NOW, Record, Topic, updates


def make_runs(topic: Topic, *runs: list[Record]) -> None:
    """Every argument becomes a run: two landed segments, merged and cleaned."""
    for records in runs:
        half = len(records) // 2
        topic.land(records[:half], records[half:])
        topic.clean("merge")
        topic.clean("clean")
    assert topic.levels() == [2] * len(runs)


def append_run(topic: Topic, records: list[Record]) -> None:
    """One commit with one level-2 segment, as a clean leaves it."""
    rows = topic.arrow(records)
    level = pa.array([2] * rows.num_rows, pa.int32())
    horizon = pa.nulls(rows.num_rows, pa.timestamp("us", tz="UTC"))
    topic.lake.table(topic.table).append(rows.append_column("level", level).append_column("delete_horizon", horizon))


def test_c15_ten_runs_of_one_record_of_one_key_become_one_record(topic: Topic) -> None:
    topic.create()
    for n in range(10):
        assert topic.plans("tier") == []
        append_run(topic, updates(f"k={n}", start=n))
    counts = topic.clean("tier")
    assert [(one.records_in, one.records_out, one.superseded) for one in counts] == [(10, 1, 9)]
    assert topic.offsets() == [9]
    assert topic.levels() == [2]
    assert topic.plans("tier", force=True) == []


def test_c15_a_tier_of_tiers_and_a_full_after_it_find_the_newest_records(topic: Topic) -> None:
    """A run is one again after a tier: twice as many records, and its own data sequence number."""
    topic.create(clean_segments="1", tier_runs="2")
    make_runs(topic, updates("a=1", "b=1"), updates("a=2", "c=2", start=2))
    topic.clean("tier")
    assert topic.offsets() == [1, 2, 3]
    topic.land(updates("b=3", start=4), updates("d=3", start=5))
    topic.clean("merge")
    topic.clean("clean")
    counts = topic.clean("tier")
    assert [(one.segments_in, one.superseded) for one in counts] == [(2, 1)]
    assert topic.offsets() == [2, 3, 4, 5]
    topic.land(updates("a=4", start=6))
    topic.clean("full")
    assert topic.offsets() == [3, 4, 5, 6]
    assert topic.levels() == [3]


def test_c7_c8_a_tier_stamps_what_nothing_older_lies_below(topic: Topic) -> None:
    topic.create(clean_segments="1", tier_runs="2")
    make_runs(topic, updates("a=1", "b=1"), updates("a=", "c=2", start=2))
    topic.clean("tier")
    assert topic.offsets() == [1, 2, 3]
    assert topic.horizons() == {2: NOW + DAY}
    topic.clean("full", NOW + DAY)
    assert topic.offsets() == [1, 3]
