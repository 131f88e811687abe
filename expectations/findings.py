"""What was found out about a plan: figures, how often which rule is broken, and samples of what breaks it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

from expectations.promises import FINGERPRINT, promises_of, record_counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from expectations.claim import Claim
    from expectations.promises.promise import Promise
    from expectations.verdict import Sample

SAMPLES_PER_RULE = 10


@dataclass(frozen=True)
class Findings:
    """What was found out about one plan, or about the part of its records that are in one bucket.

    figures       what was counted, by name
    broken        how many break each rule that is broken
    samples       up to SAMPLES_PER_RULE of them by rule, lowest offsets first
    fingerprint   the sum of the fingerprints of what was written
    closely       whether values were read on both sides
    """

    figures: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    samples: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)
    fingerprint: int = 0
    closely: bool = False

    @classmethod
    def together(cls, parts: Iterable[Findings]) -> Findings:
        """The findings about a plan from those about its buckets: no record is in two."""
        parts = tuple(parts)
        samples: dict[str, tuple[Sample, ...]] = {}
        for rule in dict.fromkeys(chain.from_iterable(part.samples for part in parts)):
            of_all = chain.from_iterable(part.samples.get(rule, ()) for part in parts)
            ordered = sorted(of_all, key=lambda sample: (sample.offset is None, sample.offset or 0, sample.key or ""))
            samples[rule] = tuple(ordered[:SAMPLES_PER_RULE])
        return cls(
            sum((part.figures for part in parts), Counter()),
            sum((part.broken for part in parts), Counter()),
            samples,
            sum(part.fingerprint for part in parts),
            any(part.closely for part in parts),
        )

    def differs(self, fingerprint: int) -> Findings:
        """The findings where compacting took another fingerprint than that of what was written.

        What was read just now agrees with what was written, so the cleaner has read something else.
        """
        if fingerprint == self.fingerprint or self.broken:
            return self
        return replace(self, broken=Counter({FINGERPRINT: 1}))


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table of findings: one promise about one plan, how many things were looked at, how many break it,
    and what was observed, as a sentence."""

    plan: str
    promise: Promise
    sentence: str
    checked: int
    broken: int
    observed: str
    samples: tuple[Sample, ...]


def rows(claim: Claim, found: Findings) -> tuple[Row, ...]:
    """The lines about the plan of `claim`."""
    return tuple(_row(promise, claim, found) for promise in promises_of(claim))


def _row(promise: Promise, claim: Claim, found: Findings) -> Row:
    if promise.rules:
        rules = [rule for rule in promise.rules if found.broken[rule.name]]
        broken = sum(found.broken[rule.name] for rule in rules)
        samples = tuple(chain.from_iterable(found.samples.get(rule.name, ()) for rule in rules))
        said = "; ".join(rule.say(found.broken[rule.name]) for rule in rules) + "."
    else:
        samples = record_counts.differences(found.figures, claim)
        broken, said = len(samples), record_counts.say(samples)
    return Row(
        claim.plan_id,
        promise,
        promise.sentence(claim),
        found.figures[promise.checked],
        broken,
        said if broken else promise.kept(found.figures, claim),
        samples,
    )
