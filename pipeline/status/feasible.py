"""Doubts about ``max.compaction.lag.ms``: values that a policy can't hold, in general or at the current rate of
arrivals, and what would hold them (C21)."""

from collections.abc import Iterable, Iterator

from pipeline.policy import Policies
from pipeline.policy.feasibility import Doubt, at_rate, by_itself, declares_lag, of_runs
from pipeline.sense import PartitionState
from pipeline.sense.arrivals import arrivals_of


def doubts(policies: Policies) -> Iterator[str]:
    """Doubts at any rate of arrivals, for the table's topics together and for each with properties of its own."""
    common = set()
    for finding in by_itself(policies.default):
        common.add(finding)
        yield str(finding)
    for topic, policy in sorted(policies.topics.items()):
        yield from (f"topic {topic}: {finding}" for finding in by_itself(policy) if finding not in common)


def doubts_at_rate(states: Iterable[PartitionState]) -> Iterator[str]:
    """Doubts at the rate at which segments land now.

    Of a topic's partitions with the same problem, the worst is named.
    """
    declared = (state for state in states if declares_lag(state.policy))
    rates = [(state, arrivals) for state in declared if (arrivals := arrivals_of(state))]
    worst: dict[tuple[str, str], tuple[str, Doubt]] = {}
    for state, arrivals in rates:
        for finding in at_rate(state.policy, arrivals):
            key = (state.topic_partition.topic, finding.about)
            if key not in worst or worst[key][1].reached_ms < finding.reached_ms:
                worst[key] = (str(state.topic_partition), finding)
    for where, finding in worst.values():
        yield f"{where}: {finding}"
    if rates:
        of_table = rates[0][0].policy
        yield from map(str, of_runs(of_table, ((state.policy, arrivals) for state, arrivals in rates)))
