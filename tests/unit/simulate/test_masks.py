"""Lane ``mask`` in the simulation: figures that can be worked out on paper, and what holds whatever arrives (C28)."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.bench.amplification import masked
from pipeline.policy import Policy
from pipeline.sense import Lane
from pipeline.simulate import Contender, Keys, Workload, contenders, simulate

SECOND = 1000
MASKED = {"profile": "kafka", "min.cleanable.dirty.ratio": "1", "mask.max.fraction": "1"}
ONE_KEY = Workload(rate=1, hours=5 / 3600, keys=1, records_per_segment=1, record_bytes=100)
"""A record a second, the first at the start, each a segment of the same key."""


def test_c28_one_key_is_seen_once_after_every_mask() -> None:
    """Looks at 1 to 5 s find 2, 3, 4, 5, 6 records; each hides all but the newest, in one more delete file each."""
    (found,) = simulate(ONE_KEY, contenders(MASKED | {"mask.max.lag.ms": "0"}, ("firn",))[:1], SECOND)
    assert found.books.hidden_changed.tolist() == [1, 1, 1, 1, 1]
    assert found.delete_files.tolist() == [0, 1, 2, 3, 4]
    assert found.seen_again.tolist() == [[1, 1, 1, 1, 1], [0, 0, 0, 0, 0]]
    assert found.thrown_away.tolist() == [[0, 0.5, 1, 1.5, 2], [1, 2, 3, 4, 5]]
    assert found.books.records == {"live": 1, "superseded": 5}


def test_c28_a_mask_waits_for_its_lag() -> None:
    """With 2 s the looks at 2 and 5 s hide: then the oldest record that was not compared landed 2 s before."""
    (found,) = simulate(ONE_KEY, contenders(MASKED | {"mask.max.lag.ms": "2000"}, ("firn",))[:1], SECOND)
    assert found.books.plans[Lane.MASK].tolist() == [0, 1, 0, 0, 1]
    assert found.books.hidden_changed.tolist() == [0, 2, 0, 0, 3]


def test_many_delete_files_become_one() -> None:
    policy = MASKED | {"mask.max.lag.ms": "0", "position.deletes.max": "2"}
    (found,) = simulate(ONE_KEY, contenders(policy, ("firn",))[:1], SECOND)
    assert found.delete_files.tolist() == [0, 1, 2, 3, 1]


def test_what_is_not_masked_is_simulated_beside_it() -> None:
    beside = contenders({"mask.max.lag.ms": "60000"})
    assert [one.name for one in beside] == ["firn", "firn without mask", "kafka", "warpstream"]
    assert [one.policy.masks for one in beside] == [True, False, False, False]
    masks, plain = simulate(Workload(hours=2, keys=10_000), beside[:2])
    assert masks.seen_again.mean() < 0.1 < plain.seen_again.mean()
    assert plain.thrown_away.max() == plain.delete_files.max() == 0


def test_write_amplification_of_the_proposed_policy() -> None:
    """The reference: 1,000,000 records over 50,000 keys, one record per key visible all the time."""
    found = masked()
    assert found.write_amplification <= 1.3
    assert found.space_amplification <= 2.0
    assert found.seen_again.mean() <= 0.02


workloads = st.builds(
    Workload,
    rate=st.floats(0.5, 10),
    hours=st.floats(0.2, 0.6),
    records_per_segment=st.integers(1, 30),
    distribution=st.sampled_from(Keys),
    keys=st.integers(1, 300),
    update_ratio=st.floats(0.3, 1),
    delete_ratio=st.floats(0, 0.3),
    seed=st.integers(0, 9),
)
policies = st.builds(
    Policy,
    mask_max_lag_ms=st.sampled_from((0, 60_000, 300_000)),
    mask_max_fraction=st.sampled_from((0.5, 1.0)),
    position_deletes_max=st.integers(1, 8),
    merge_segments=st.integers(2, 6),
    leave_to_full_fraction=st.sampled_from((0.25, float("inf"))),
    clean_segments=st.integers(1, 6),
    tier_runs=st.integers(2, 3),
    min_cleanable_dirty_ratio=st.sampled_from((0.0, 0.5, 0.95)),
    full_interval_ms=st.sampled_from((-1, 600_000)),
    active_segments=st.integers(0, 2),
    delete_retention_ms=st.sampled_from((0, 300_000)),
)


@settings(max_examples=15)
@given(workloads, policies)
def test_c24_c28_the_books_balance(workload: Workload, policy: Policy) -> None:
    (found,) = simulate(workload, (Contender("any", policy, leaves_in_place=True),))
    books = found.books
    assert books.landed == sum(books.records.values())
    assert np.cumsum(books.hidden_changed).min() >= 0
    assert np.cumsum(books.delete_files_changed).min() >= 0
    assert found.seen_again.min() >= 0
    assert np.nanmin(found.space, initial=1) >= 1


@settings(max_examples=10)
@given(workloads, policies)
def test_c28_without_a_lag_every_look_leaves_one_record_per_key(workload: Workload, policy: Policy) -> None:
    every = policy.model_copy(update={"mask_max_lag_ms": 0, "active_segments": 0})
    (found,) = simulate(replace(workload, delete_ratio=0.0), (Contender("any", every, leaves_in_place=True),))
    assert not found.seen_again[1].any()
