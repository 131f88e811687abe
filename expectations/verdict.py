"""The result of a validation, small enough for a table property."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_VERDICT_BYTES = 16_000
SAMPLES_IN_VERDICT = 3
"""Samples per expectation in a verdict; the stored validation result holds up to ten per rule."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One offending record: where it is, what was found there and what was expected. Key and value are as far as they
    may be shown (see `shown`)."""

    offset: int | None
    key: str | None
    found: str
    expected: str
    value: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The sample as JSON-ready names and values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """One expectation: its promise as a sentence, whether it was kept, and what was observed, in words."""

    name: str
    sentence: str
    passed: bool
    observed: str
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What Great Expectations found about one stage.

    seconds is the validation's share of wall time; run_name names the stored validation result and its page; closely
    tells whether values were read of both sides, or a fingerprint vouched for those that were read.
    """

    plan_id: str
    passed: bool
    expectations: tuple[Finding, ...]
    seconds: float
    run_name: str
    closely: bool = False

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The expectations that were not met."""
        return tuple(finding for finding in self.expectations if not finding.passed)

    def to_dict(self) -> dict[str, Any]:
        """The verdict as JSON-ready names and values; `from_dict` is its inverse."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Verdict:
        """The verdict back from `to_dict` (or from its JSON); unknown or missing names raise."""
        findings = tuple(
            Finding(**{**finding, "samples": tuple(Sample(**sample) for sample in finding["samples"])})
            for finding in fields["expectations"]
        )
        return cls(**{**fields, "expectations": findings})

    def bounded(self) -> Verdict:
        """The same verdict with as few samples as it takes to stay below MAX_VERDICT_BYTES of JSON."""
        verdict = self
        for most in range(SAMPLES_IN_VERDICT, -1, -1):
            verdict = replace(
                self,
                expectations=tuple(replace(f, samples=f.samples[:most]) for f in self.expectations),
            )
            if len(json.dumps(verdict.to_dict())) < MAX_VERDICT_BYTES:
                break
        return verdict
