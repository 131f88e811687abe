"""Checks that a policy can hold its ``max.compaction.lag.ms`` at a given arrival rate, and suggests what would.

Formulas only; times are milliseconds, sizes file bytes, rates per second, all of one topic partition. With

    a, b, r   segments, bytes and records that land per second        T   bytes of the tail
    M, C      merge.segments, clean.segments                          R   min.cleanable.dirty.ratio
    I, s      full.interval.ms (never: infinite), run.interval.ms     L   max.compaction.lag.ms

levels deduplicate after M x C / a, a full clean is due after min(R / (1 - R) x T / b, I, L), and the next run comes up
to s later. docs/configuration.md has them with worked examples.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil, floor, inf

from pipeline.policy.policy import LONG_MAX, Policy
from pipeline.policy.profiles import INT_MAX


@dataclass(frozen=True)
class Arrivals:
    """Arrival rates of a topic partition, per second, and the bytes of its tail."""

    segments: float
    records: float
    bytes: float
    tail_bytes: int = 0


@dataclass(frozen=True)
class Doubt:
    """A reason why a lag is not held, the lag reached (milliseconds, infinite if it grows), and the remedy."""

    about: str
    """The property to check first; one doubt per property is enough for a topic."""
    reached_ms: float
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.problem}; remedy: {self.remedy}"


def levels_lag_ms(policy: Policy, arrivals: Arrivals) -> float:
    """Milliseconds of arrivals until lanes `merge` and `clean` first deduplicate: M x C / a."""
    return policy.merge_segments * policy.clean_segments / arrivals.segments * 1000


def ratio_lag_ms(policy: Policy, arrivals: Arrivals) -> float:
    """Milliseconds of arrivals until the dirty ratio exceeds R: R / (1 - R) x T / b; never for R = 1."""
    ratio = policy.min_cleanable_dirty_ratio
    return inf if ratio == 1 else ratio / (1 - ratio) * arrivals.tail_bytes / arrivals.bytes * 1000


def full_lag_ms(policy: Policy, arrivals: Arrivals) -> float:
    """Maximum age (milliseconds) of a head record when a full clean is due: min(R / (1 - R) x T / b, I, L)."""
    interval = policy.full_interval_ms if policy.full_interval_ms >= 0 else inf
    return min(ratio_lag_ms(policy, arrivals), interval, policy.max_compaction_lag_ms)


def by_itself(policy: Policy) -> Iterator[Doubt]:
    """Yield the reasons why ``policy`` can't hold its lag at any arrival rate."""
    lag, young, gap = policy.max_compaction_lag_ms, policy.min_compaction_lag_ms, policy.run_interval_ms
    if not declares_lag(policy):
        return
    if young >= lag:
        yield Doubt(
            "min.compaction.lag.ms",
            young,
            f"max.compaction.lag.ms {lag} can't be met: records are not cleaned for min.compaction.lag.ms {young}",
            f"a smaller min.compaction.lag.ms than {lag}",
        )
    if gap >= lag:
        yield Doubt(
            "run.interval.ms",
            lag + gap,
            f"max.compaction.lag.ms {lag} can't be met: runs start every {gap} ms (run.interval.ms)",
            f"runs closer together than {lag} ms, with run.interval.ms set to match",
        )
    if policy.active_segments:
        yield Doubt(
            "active.segments",
            inf,
            f"max.compaction.lag.ms {lag} can't be met for the newest {policy.active_segments} segments "
            "(active.segments) while nothing lands",
            "active.segments 0",
        )


def at_rate(policy: Policy, arrivals: Arrivals) -> Iterator[Doubt]:
    """Yield the reasons why ``policy`` can't hold its lag at this rate, without those that apply at any rate."""
    if not declares_lag(policy):
        return
    yield from _spacing(policy, arrivals)
    yield from _triggers(policy, arrivals)
    yield from _levels(policy, arrivals)
    yield from _plans(policy, arrivals)


def of_runs(policy: Policy, runs: Iterable[tuple[Policy, Arrivals]]) -> Iterator[Doubt]:
    """Yield the reasons why a run's budget can't hold the lags of all topic partitions (policies and arrivals).

    To hold L each is cleaned once per L: bytes per second = sum of (T / L + b), which times s is the need per run.
    """
    rate = sum(
        arrivals.tail_bytes / (own.max_compaction_lag_ms / 1000) + arrivals.bytes
        for own, arrivals in runs
        if declares_lag(own)
    )
    needed = rate * policy.run_interval_ms / 1000
    if needed > policy.run_max_bytes:
        yield Doubt(
            "run.max.bytes",
            inf,
            f"the max.compaction.lag.ms of all topic partitions together can't be met: they need {ceil(needed)} bytes "
            f"in a run, available: {policy.run_max_bytes} (run.max.bytes)",
            f"run.max.bytes of at least {ceil(needed)}, or runs every {floor(policy.run_max_bytes / rate * 1000)} ms",
        )


def declares_lag(policy: Policy) -> bool:
    """True when ``policy`` promises a meaningful maximum lag: a finite one of a compacted topic."""
    return policy.compacts and policy.max_compaction_lag_ms < LONG_MAX


def _spacing(policy: Policy, arrivals: Arrivals) -> Iterator[Doubt]:
    """Doubts about segment spacing: a segment spans 1000 / a ms and waits for its newest record and active segments."""
    lag, young, active = policy.max_compaction_lag_ms, policy.min_compaction_lag_ms, policy.active_segments
    span = 1000 / arrivals.segments
    if young and young < lag < young + span:
        remedy = f"min.compaction.lag.ms of at most {floor(lag - span)}" if span < lag else f"a segment every {lag} ms"
        yield Doubt(
            "min.compaction.lag.ms",
            young + span,
            f"max.compaction.lag.ms {lag} is not met: a segment spans {ceil(span)} ms and is not cleaned for "
            f"min.compaction.lag.ms {young} after that",
            remedy,
        )
    if active * span > lag:
        yield Doubt(
            "active.segments",
            active * span,
            f"max.compaction.lag.ms {lag} is not met: the newest {active} segments (active.segments) span "
            f"{ceil(active * span)} ms",
            f"active.segments of at most {floor(lag / span)}",
        )


def _triggers(policy: Policy, arrivals: Arrivals) -> Iterator[Doubt]:
    """Doubts about triggers: the lag itself fires one run too late, so another trigger has to fire first."""
    lag, gap = policy.max_compaction_lag_ms, policy.run_interval_ms
    reached = full_lag_ms(policy, arrivals) + gap
    if gap < lag < reached:
        # Bytes that arrive in time for the previous run determine its dirty ratio.
        fresh = arrivals.bytes * (lag - gap) / 1000
        ratio = floor(1000 * fresh / (arrivals.tail_bytes + fresh)) / 1000
        or_ratio = f", or min.cleanable.dirty.ratio of less than {ratio}" if ratio else ""
        yield Doubt(
            "full.interval.ms",
            reached,
            f"max.compaction.lag.ms {lag} is not met: a full clean is due after {ceil(reached - gap)} ms, and the "
            f"next run comes up to {gap} ms later (run.interval.ms)",
            f"full.interval.ms of at most {lag - gap}{or_ratio}",
        )


def _levels(policy: Policy, arrivals: Arrivals) -> Iterator[Doubt]:
    """Doubts about levels: if they come too late, every record waits for a full clean, which may rewrite the tail."""
    lag, reached = policy.max_compaction_lag_ms, levels_lag_ms(policy, arrivals)
    if reached <= lag or policy.merge_segments * policy.clean_segments >= INT_MAX:
        return
    product = floor(arrivals.segments * lag / 1000)
    merge = max(2, math.isqrt(max(product, 0)))
    remedy = f"merge.segments x clean.segments of at most {product}, such as {merge} x {product // merge}"
    yield Doubt(
        "merge.segments",
        reached,
        f"max.compaction.lag.ms {lag} is met by full cleans alone: {policy.merge_segments} x {policy.clean_segments} "
        f"segments (merge.segments x clean.segments) arrive in {ceil(reached)} ms",
        remedy if product >= merge else f"at least two segments every {lag} ms",
    )


def _plans(policy: Policy, arrivals: Arrivals) -> Iterator[Doubt]:
    """Doubts about plan size: unless one plan per run takes the arrivals between runs, a backlog grows."""
    seconds = policy.run_interval_ms / 1000
    for name, unit, rate, allowed in (
        ("plan.max.bytes", "bytes", arrivals.bytes, policy.plan_max_bytes),
        ("plan.max.records", "records", arrivals.records, policy.plan_max_records),
        ("cleaner.dedupe.buffer.size", "keys, if every record has its own,", arrivals.records, policy.keys_per_plan),
    ):
        if rate * seconds > allowed:
            size = policy.bytes_per_key * policy.cleaner_threads / policy.cleaner_io_buffer_load_factor
            least = ceil(rate * seconds * (size if name.startswith("cleaner.") else 1))
            yield Doubt(
                name,
                inf,
                f"max.compaction.lag.ms {policy.max_compaction_lag_ms} can't be met: {ceil(rate * seconds)} {unit} "
                f"arrive between runs, a plan takes {allowed} ({name})",
                f"{name} of at least {least}, or runs every {floor(allowed / rate * 1000)} ms",
            )
