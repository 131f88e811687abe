"""Comparison of several sets of rules on the same arrivals, and its figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pipeline.errors import RefusedError
from pipeline.policy import Policies
from pipeline.policy.policies import PREFIX
from pipeline.policy.policy import NEVER
from pipeline.sense import Lane
from pipeline.simulate.arrivals import HOUR_MS, START_MS, Workload, ticks
from pipeline.simulate.replay import Contender, replay
from pipeline.simulate.totals import Series, Totals

EVERY_MS = 60_000
"""Default interval between runs of the planner, milliseconds."""
MAX_TICKS = 1_000_000
FIRN = "firn"
UNMASKED = "firn without mask"
PEERS = ("kafka", "warpstream")
"""Profiles whose rules are simulated beside Firn's."""


@dataclass(frozen=True)
class Simulated:
    """The results of one contender. Figures are for the whole table, scaled from the simulated part."""

    contender: Contender
    workload: Workload
    books: Totals

    @property
    def write_amplification(self) -> float:
        """Bytes that plans wrote / bytes that landed: 0 when nothing was rewritten, 1 when everything was, once."""
        return float(self.books.written_bytes.sum() / self.books.landed_bytes.sum())

    @property
    def space_amplification(self) -> float:
        """Mean over time of ``space``; 1 when the table holds only the newest record of each key."""
        return float(np.nanmean(self.space))

    @property
    def most_space(self) -> float:
        """Maximum over time of ``space``."""
        return float(np.nanmax(self.space))

    @cached_property
    def space(self) -> Series:
        """Bytes in the table / bytes of the newest value per key: before and after the plans of each tick, a row each.

        NaN while no key has a value.
        """
        live = np.cumsum(self.books.live_bytes)
        after = np.cumsum(self.books.landed_bytes + self.books.bytes_changed)
        held = np.stack((after - self.books.bytes_changed, after))
        return np.asarray(np.divide(held, live, out=np.full_like(held, np.nan), where=live > 0))

    @cached_property
    def delete_files(self) -> Series:
        """Delete files in the table before the plans of each tick."""
        changed = self.books.delete_files_changed
        return np.asarray((np.cumsum(changed) - changed) * self.workload.scale)

    @cached_property
    def thrown_away(self) -> Series:
        """Hidden records that a full scan reads and throws away per record that it shows, before and after the plans of
        each tick, a row each."""
        visible, hidden = self._visible_and_hidden
        return np.asarray(hidden / np.maximum(visible, 1))

    @cached_property
    def seen_again(self) -> Series:
        """Superseded records that a full scan shows per key, likewise; 0 with one record per key."""
        visible, _ = self._visible_and_hidden
        after = np.cumsum(self.books.keys_landed + self.books.keys_changed)
        keys = np.stack((after - self.books.keys_changed, after))
        return np.asarray((visible - keys) / np.maximum(keys, 1))

    @cached_property
    def _visible_and_hidden(self) -> tuple[Series, Series]:
        books = self.books
        landed = books.landed_segments * self.workload.records_per_segment
        stored, hidden = np.cumsum(landed + books.records_changed), np.cumsum(books.hidden_changed)
        every = np.stack((stored - books.records_changed, stored))
        out_of_sight = np.stack((hidden - books.hidden_changed, hidden))
        return every - out_of_sight, out_of_sight

    @cached_property
    def segments(self) -> Series:
        """Segments in the table before the plans of each tick, a row per level."""
        changed = self.books.segments_changed
        before = np.cumsum(changed, axis=1) - changed
        before[0] += np.cumsum(self.books.landed_segments)
        return np.asarray(before * self.workload.scale)

    @cached_property
    def lag_ms(self) -> Series:
        """Wait of the oldest record outside the tail, milliseconds, before the plans of each tick: the mean over topic
        partitions, 0 for one without such a record."""
        dirty, oldest = np.cumsum(self.books.dirty_changed[:-1]), np.cumsum(self.books.oldest_changed[:-1])
        since = self.books.ticks - self.books.ticks[0]
        return np.asarray((dirty * since - oldest) / self.workload.simulated)

    @property
    def plans_per_hour(self) -> dict[Lane, float]:
        return {
            lane: float(plans.sum()) * self.workload.scale / self._hours for lane, plans in self.books.plans.items()
        }

    @property
    def jobs_per_hour(self) -> float:
        """Jobs per hour if all plans of a lane at a tick share one; `retain` needs none."""
        jobs = sum(np.count_nonzero(plans) for lane, plans in self.books.plans.items() if lane is not Lane.RETAIN)
        return float(jobs / self._hours)

    @property
    def _hours(self) -> float:
        return (int(self.books.ticks[-1]) - START_MS) / HOUR_MS

    def as_dict(self) -> dict[str, Any]:
        """The figures by name, for JSON; times in milliseconds."""
        levels = self.segments
        return {
            "rules": self.contender.name,
            "write_amplification": self.write_amplification,
            "space_amplification": self.space_amplification,
            "most_space_amplification": self.most_space,
            "segments": float(levels.sum(axis=0).mean()),
            "most_segments": float(levels.sum(axis=0).max()),
            "delete_files": float(self.delete_files.mean()),
            "most_delete_files": float(self.delete_files.max()),
            "thrown_away": float(self.thrown_away.mean()),
            "seen_again": float(self.seen_again.mean()),
            "segments_by_level": {f"L{level}": float(segments.mean()) for level, segments in enumerate(levels)},
            "lag_ms": float(self.lag_ms.mean()),
            "longest_lag_ms": self.books.longest_lag_ms,
            "plans_per_hour": {lane.value: count for lane, count in self.plans_per_hour.items()},
            "jobs_per_hour": self.jobs_per_hour,
            "records": {"landed": self.books.landed, **self.books.records},
        }


def contenders(policy: Mapping[str, str], rules: Sequence[str] = (FIRN, *PEERS)) -> list[Contender]:
    """The contenders for ``rules``; ``policy`` (names without prefix) sets Firn's rules, the others follow their
    profiles. Where the policy masks, Firn's rules without lane ``mask`` are another contender. Raises RefusedError for
    an invalid property or unknown rules."""
    chosen: list[Contender] = []
    for name in rules:
        if name not in (FIRN, *PEERS):
            raise RefusedError(f"rules {name!r} are unknown; allowed: {', '.join((FIRN, *PEERS))}")
        chosen.append(_contender(name, policy if name == FIRN else {"profile": name}))
        if chosen[-1].policy.masks:
            chosen.append(_contender(UNMASKED, {**policy, "mask.max.lag.ms": str(NEVER)}))
    return chosen


def _contender(name: str, properties: Mapping[str, str]) -> Contender:
    parsed = Policies.parse("of the simulation", {PREFIX + key: value for key, value in properties.items()})
    return Contender(name, parsed.default, leaves_in_place=name in (FIRN, UNMASKED))


def simulate(workload: Workload, sides: Sequence[Contender], every_ms: int = EVERY_MS) -> list[Simulated]:
    """Replay the same arrivals for every contender, with the planner running every ``every_ms``.

    Topic partitions do not influence each other, so each is replayed on its own, from start to end: memory holds one at
    a time. Raises RefusedError for an invalid interval.
    """
    if every_ms < 1 or workload.duration_ms / every_ms > MAX_TICKS:
        least = max(1, workload.duration_ms // MAX_TICKS)
        raise RefusedError(
            f"every is {every_ms} ms; allowed: at least {least} ms, which makes {MAX_TICKS:,} runs of the planner"
        )
    looks = ticks(workload, every_ms)
    results = [Simulated(side, workload, Totals(looks)) for side in sides]
    for number in range(workload.simulated):
        stream = workload.stream(number)
        for result in results:
            result.books.arrive(stream)
            replay(stream, result.contender, result.books)
    return results
