"""Findings about a plan: figures, the number of violations per rule, and samples of the violations."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from expectations.promises import FINGERPRINT, promises_of, record_counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from expectations.claim import Claim
    from expectations.promises.promise import Promise
    from expectations.verdict import Sample

SAMPLES_PER_RULE = 10


@dataclass(frozen=True)
class Findings:
    """The findings about one plan, or about those of its records that are in one bucket.

    figures       counts by name
    broken        number of violations of each broken rule
    samples       up to SAMPLES_PER_RULE violations per rule, lowest offsets first
    fingerprint   sum of the fingerprints of the records written
    closely       True when values were read on both sides
    """

    figures: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    samples: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)
    fingerprint: int = 0
    closely: bool = False

    @classmethod
    def together(cls, parts: Iterable[Findings]) -> Findings:
        """Combine the findings about a plan's buckets; no record is in two buckets."""
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
        """The findings when compaction took another fingerprint than that of the records written.

        The records read just now agree with the records written, so the cleaner read something else.
        """
        if fingerprint == self.fingerprint or self.broken:
            return self
        return replace(self, broken=Counter({FINGERPRINT: 1}))


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table of findings: one promise about one plan, the number of items checked, the number that break
    it, and the observation as a sentence."""

    plan: str
    promise: Promise
    sentence: str
    checked: int
    broken: int
    observed: str
    samples: tuple[Sample, ...]

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON-ready names and values."""
        return {
            "plan": self.plan,
            "promise": self.promise.name,
            "number": self.promise.number,
            "sentence": self.sentence,
            "checked": self.checked,
            "broken": self.broken,
            "observed": self.observed,
            "samples": [sample.to_dict() for sample in self.samples],
        }


def rows(claim: Claim, findings: Findings) -> tuple[Row, ...]:
    """The rows about the plan of `claim`."""
    return tuple(_row(promise, claim, findings) for promise in promises_of(claim))


def _row(promise: Promise, claim: Claim, findings: Findings) -> Row:
    if promise.rules:
        rules = [rule for rule in promise.rules if findings.broken[rule.name]]
        broken = sum(findings.broken[rule.name] for rule in rules)
        samples = tuple(chain.from_iterable(findings.samples.get(rule.name, ()) for rule in rules))
        said = "; ".join(rule.say(findings.broken[rule.name]) for rule in rules) + "."
    else:
        samples = record_counts.differences(findings.figures, claim)
        broken, said = len(samples), record_counts.say(samples)
    return Row(
        claim.plan_id,
        promise,
        promise.sentence(claim),
        findings.figures[promise.checked],
        broken,
        said if broken else promise.kept(findings.figures, claim),
        samples,
    )
