"""The simulation beside the real lanes on the same arrivals: same segments, hidden records and delete files (C28)."""

from collections import Counter

import numpy as np

from pipeline import clock
from pipeline.segments.segment import LEVELS
from pipeline.sense import Lane
from pipeline.simulate import Workload
from pipeline.simulate.arrivals import HOUR_MS, START_MS
from tests.support.hiding import deletes
from tests.support.simulated import under
from tests.support.topics import Record, Topic

LOOK_MS = 2 * HOUR_MS
POLICY = {
    # What decides are numbers and clocks, which are the same for files of any size.
    "merge_segments": "2",
    "clean_segments": "2",
    "clean_tail_fraction": "inf",
    "tier_runs": "2",
    "tier_size_ratio": "1000",
    "leave_to_full_fraction": "inf",
    "min_cleanable_dirty_ratio": "1",
    "full_interval_ms": str(5 * HOUR_MS),
    "mask_max_lag_ms": "1",
    "mask_max_fraction": "1",
    "position_deletes_max": "2",
}


def test_c28_the_simulation_hides_and_writes_what_the_lanes_do(topic: Topic) -> None:
    workload = Workload(rate=4 / 3600, hours=14, records_per_segment=4, keys=6, delete_ratio=0.1)
    simulated = under(workload, {name.replace("_", "."): value for name, value in POLICY.items()}, LOOK_MS)
    stream = workload.stream(0)
    topic.create(**POLICY)
    begin_ms, landed = clock.now_ms(), 0
    plans: Counter[Lane] = Counter()
    for look, tick in enumerate(simulated.books.ticks.tolist()):
        while landed < stream.segments and stream.landed_ms[landed] <= tick:
            offsets = range(landed * 4, landed * 4 + 4)
            topic.land(
                [
                    Record(
                        offset,
                        b"k%d" % stream.keys[offset],
                        None if stream.tombstones[offset] else b"x",
                        timestamp_ms=begin_ms + stream.record_at_ms(offset) - START_MS,
                    )
                    for offset in offsets
                ]
            )
            landed += 1
        levels = Counter(topic.levels())
        assert [levels[level] for level in LEVELS] == simulated.segments[:, look].tolist(), look
        assert len(deletes(topic)) == simulated.delete_files[look], look
        runs = topic.run(begin_ms + tick - START_MS)
        plans.update({run.lane: len(run.plans) for run in runs if run.plans})
        seen = topic.seen()
        hidden = sum(segment.records for segment in topic.segments()) - len(seen)
        assert hidden == int(np.cumsum(simulated.books.hidden_changed)[look]), look
        assert len(seen) == len({record.key for record in seen}), "one record per key after every run"
    assert plans == {lane: count for lane, series in simulated.books.plans.items() if (count := series.sum())}
    assert {Lane.MASK, Lane.MERGE, Lane.CLEAN, Lane.FULL} <= plans.keys()
    superseded = landed * 4 - len(topic.seen()) - simulated.books.records["tombstones removed"]
    assert simulated.books.records["superseded"] == superseded
