"""Simulations of Firn under one policy, and random workloads and policies for them."""

from collections.abc import Mapping
from math import inf
from typing import Any

from hypothesis import strategies as st

from pipeline.policy import Policy
from pipeline.simulate import Keys, Simulated, Workload, contenders, simulate

SECOND = 1000


def under(workload: Workload, policy: Mapping[str, str], every_ms: int = SECOND) -> Simulated:
    """Firn's result under a policy; one that masks is not simulated without lane ``mask`` as well."""
    (result,) = simulate(workload, contenders(policy, ("firn",))[:1], every_ms)
    return result


def workloads(most_partitions: int = 1) -> st.SearchStrategy[Workload]:
    """Up to 36 minutes of up to ten records a second and topic partition."""
    return st.builds(
        Workload,
        rate=st.floats(0.5, 10),
        hours=st.floats(0.2, 0.6),
        partitions=st.integers(1, most_partitions),
        records_per_segment=st.integers(1, 30),
        distribution=st.sampled_from(Keys),
        keys=st.integers(1, 300),
        update_ratio=st.floats(0.3, 1),
        delete_ratio=st.floats(0, 0.3),
        seed=st.integers(0, 9),
    )


def policies(**others: st.SearchStrategy[Any]) -> st.SearchStrategy[Policy]:
    """Policies under which each lane has its turn, with ``others`` of their properties."""
    return st.builds(
        Policy,
        merge_segments=st.integers(2, 6),
        leave_to_full_fraction=st.sampled_from((0.25, 1.0, inf)),
        clean_segments=st.integers(1, 6),
        tier_runs=st.integers(2, 3),
        min_cleanable_dirty_ratio=st.sampled_from((0.0, 0.5, 0.9)),
        full_interval_ms=st.sampled_from((-1, 600_000)),
        active_segments=st.integers(0, 2),
        delete_retention_ms=st.sampled_from((0, 300_000)),
        **others,
    )
