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
    """One offending record: its place, the finding and the expectation. Key and value are redacted (see
    `redaction`)."""

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
    """The result of one expectation: its promise as a sentence, the outcome, and the observation in words."""

    name: str
    sentence: str
    passed: bool
    observed: str
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Great Expectations' verdict on one stage.

    seconds is the validation's share of wall time; run_name names the stored validation result and its page; closely
    is True when values of both sides were read, False when a fingerprint vouched for the values on the read side.
    """

    plan_id: str
    passed: bool
    expectations: tuple[Finding, ...]
    seconds: float
    run_name: str
    closely: bool = False

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The expectations that failed."""
        return tuple(finding for finding in self.expectations if not finding.passed)

    def to_dict(self) -> dict[str, Any]:
        """The verdict as JSON-ready names and values; `from_dict` is its inverse."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Verdict:
        """Restore a verdict from `to_dict` (or from its JSON). Raises for unknown or missing names."""
        findings = tuple(
            Finding(**{**finding, "samples": tuple(Sample(**sample) for sample in finding["samples"])})
            for finding in fields["expectations"]
        )
        return cls(**{**fields, "expectations": findings})

    def bounded(self) -> Verdict:
        """The same verdict, with samples dropped until its JSON is below MAX_VERDICT_BYTES."""
        verdict = self
        for most in range(SAMPLES_IN_VERDICT, -1, -1):
            verdict = replace(
                self,
                expectations=tuple(replace(f, samples=f.samples[:most]) for f in self.expectations),
            )
            if len(json.dumps(verdict.to_dict())) < MAX_VERDICT_BYTES:
                break
        return verdict
