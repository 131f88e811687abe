"""Simulations of Firn under one policy."""

from collections.abc import Mapping

from pipeline.simulate import Simulated, Workload, contenders, simulate

SECOND = 1000


def under(workload: Workload, policy: Mapping[str, str], every_ms: int = SECOND) -> Simulated:
    """Firn's result under a policy."""
    (result,) = simulate(workload, contenders(policy, ("firn",)), every_ms)
    return result
