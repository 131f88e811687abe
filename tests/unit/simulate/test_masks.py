"""Lane ``mask`` in the simulation: figures that can be worked out on paper, and what holds whatever arrives (C28)."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.bench.amplification import masked
from pipeline.policy import Policy
from pipeline.sense import Lane
from pipeline.simulate import Contender, Workload, contenders, simulate
from tests.support.simulated import policies, under, workloads

MASKED = {"profile": "kafka", "min.cleanable.dirty.ratio": "1", "mask.max.fraction": "1"}
ONE_KEY = Workload(rate=1, hours=5 / 3600, keys=1, records_per_segment=1, record_bytes=100)
"""A record a second, the first at the start, each a segment of the same key."""


def test_c28_one_key_is_seen_once_after_every_mask() -> None:
    """Looks at 1 to 5 s find 2, 3, 4, 5, 6 records; each hides all but the newest, in one more delete file each."""
    result = under(ONE_KEY, MASKED | {"mask.max.lag.ms": "0"})
    assert result.books.hidden_changed.tolist() == [1, 1, 1, 1, 1]
    assert result.delete_files.tolist() == [0, 1, 2, 3, 4]
    assert result.seen_again.tolist() == [[1, 1, 1, 1, 1], [0, 0, 0, 0, 0]]
    assert result.thrown_away.tolist() == [[0, 0.5, 1, 1.5, 2], [1, 2, 3, 4, 5]]
    assert result.books.records == {"live": 1, "superseded": 5}


def test_c28_a_mask_waits_for_its_lag() -> None:
    """With 2 s the looks at 2 and 5 s hide: then the oldest record that was not compared landed 2 s before."""
    result = under(ONE_KEY, MASKED | {"mask.max.lag.ms": "2000"})
    assert result.books.plans[Lane.MASK].tolist() == [0, 1, 0, 0, 1]
    assert result.books.hidden_changed.tolist() == [0, 2, 0, 0, 3]


def test_many_delete_files_become_one() -> None:
    result = under(ONE_KEY, MASKED | {"mask.max.lag.ms": "0", "position.deletes.max": "2"})
    assert result.delete_files.tolist() == [0, 1, 2, 3, 1]


def test_what_is_not_masked_is_simulated_beside_it() -> None:
    beside = contenders({"mask.max.lag.ms": "60000"})
    assert [one.name for one in beside] == ["firn", "firn without mask", "kafka", "warpstream"]
    assert [one.policy.masks for one in beside] == [True, False, False, False]
    masks, plain = simulate(Workload(hours=2, keys=10_000), beside[:2])
    assert masks.seen_again.mean() < 0.1 < plain.seen_again.mean()
    assert plain.thrown_away.max() == plain.delete_files.max() == 0


def test_write_amplification_of_the_proposed_policy() -> None:
    """The reference: 1,000,000 records over 50,000 keys, one record per key visible all the time."""
    result = masked()
    assert result.write_amplification <= 1.3
    assert result.space_amplification <= 2.0
    assert result.seen_again.mean() <= 0.02


WORKLOADS = workloads()
POLICIES = policies(
    mask_max_lag_ms=st.sampled_from((0, 60_000, 300_000)),
    mask_max_fraction=st.sampled_from((0.5, 1.0)),
    position_deletes_max=st.integers(1, 8),
)


@settings(max_examples=15)
@given(WORKLOADS, POLICIES)
def test_c24_c28_the_books_balance(workload: Workload, policy: Policy) -> None:
    (result,) = simulate(workload, (Contender("any", policy, leaves_in_place=True),))
    books = result.books
    assert books.landed == sum(books.records.values())
    assert np.cumsum(books.hidden_changed).min() >= 0
    assert np.cumsum(books.delete_files_changed).min() >= 0
    assert result.seen_again.min() >= 0
    assert np.nanmin(result.space, initial=1) >= 1


@settings(max_examples=10)
@given(WORKLOADS, POLICIES)
def test_c28_without_a_lag_every_look_leaves_one_record_per_key(workload: Workload, policy: Policy) -> None:
    every = policy.model_copy(update={"mask_max_lag_ms": 0, "active_segments": 0})
    (result,) = simulate(replace(workload, delete_ratio=0.0), (Contender("any", every, leaves_in_place=True),))
    assert not result.seen_again[1].any()
