"""Says where a policy can't hold its ``max.compaction.lag.ms``, and suggests what would (C21). Times: milliseconds."""

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.policy.policies import Policies
from pipeline.policy.policy import LONG_MAX, Policy


@dataclass(frozen=True)
class Doubt:
    """A reason why a lag can't be held, and the remedy."""

    about: str
    """The property to look at first."""
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.problem}; remedy: {self.remedy}"


def doubts(policies: Policies) -> Iterator[str]:
    """The doubts about a table's policies: for its topics together, and for each with properties of its own."""
    common = set()
    for doubt in by_itself(policies.default):
        common.add(doubt)
        yield str(doubt)
    for topic, policy in sorted(policies.topics.items()):
        yield from (f"topic {topic}: {doubt}" for doubt in by_itself(policy) if doubt not in common)


def by_itself(policy: Policy) -> Iterator[Doubt]:
    """The reasons why ``policy`` can't hold its lag, whatever arrives; none where it declares none."""
    lag, young, gap = policy.max_compaction_lag_ms, policy.min_compaction_lag_ms, policy.run_interval_ms
    if not policy.compacts or lag >= LONG_MAX:
        return
    if young >= lag:
        yield Doubt(
            "min.compaction.lag.ms",
            f"max.compaction.lag.ms {lag} can't be met: records are not cleaned for min.compaction.lag.ms {young}",
            f"a smaller min.compaction.lag.ms than {lag}",
        )
    if gap >= lag:
        yield Doubt(
            "run.interval.ms",
            f"max.compaction.lag.ms {lag} can't be met: runs start every {gap} ms (run.interval.ms)",
            f"runs closer together than {lag} ms, with run.interval.ms set to match",
        )
    if policy.active_segments:
        yield Doubt(
            "active.segments",
            f"max.compaction.lag.ms {lag} can't be met for the newest {policy.active_segments} segments "
            "(active.segments) while nothing lands",
            "active.segments 0",
        )
