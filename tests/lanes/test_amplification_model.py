"""The model of amplification beside the real lanes on the same arrivals: same segments, same records."""

from collections import Counter

import pytest

from firnlake import clock
from firnlake.job.lane import Lane
from firnlake.table.policies import Policies
from infra.bench.amplification import Model
from infra.bench.arrivals import START_MS, Arrivals, uniform
from tests.support.topics import Record, Topic

pytestmark = pytest.mark.nightly

HOUR_MS = 3_600_000
LOOK_MS = 2 * HOUR_MS
POLICY = {
    # What decides are numbers and clocks, which are the same for files of any size.
    "merge_segments": "2",
    "clean_segments": "2",
    "clean_tail_fraction": "inf",
    "tier_runs": "2",
    "min_cleanable_dirty_ratio": "1",
    "full_interval_ms": str(5 * HOUR_MS),
}


def test_the_model_writes_what_the_lanes_do(topic: Topic) -> None:
    drawn = uniform(6, records=56, deletes=0.1)
    arrivals = Arrivals(drawn.keys, drawn.tombstones, rate=4 / 3600, per_segment=4)
    model = Model(
        arrivals,
        Policies.parse(
            "of the model", {f"firn.{name.replace('_', '.')}": value for name, value in POLICY.items()}
        ).default,
    )
    topic.create(**POLICY)
    begin_ms, landed = clock.now_ms(), 0
    plans: Counter[Lane] = Counter()
    for tick in range(START_MS + LOOK_MS, START_MS + 8 * LOOK_MS, LOOK_MS):
        model.land(tick)
        while landed < model.landed:
            topic.land(
                [
                    Record(
                        offset,
                        b"k%d" % arrivals.keys[offset],
                        None if arrivals.tombstones[offset] else b"x",
                        timestamp_ms=begin_ms + arrivals.record_at_ms(offset) - START_MS,
                    )
                    for offset in range(landed, landed + 4)
                ]
            )
            landed += 4
        assert Counter(topic.levels()) == Counter(segment.level for segment in model.segments), tick
        runs = topic.run(begin_ms + tick - START_MS)
        plans.update({run.lane: len(run.plans) for run in runs if run.plans})
        model.look(tick)
        held = [offset for segment in model.segments for offset in model.offsets(segment).tolist()]
        assert sorted(record.offset for record in topic.seen()) == sorted(held), tick
    assert plans == model.plans
    assert {Lane.MERGE, Lane.CLEAN, Lane.FULL} <= plans.keys()
