"""What the expectations of this package have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from great_expectations.expectations.expectation import BatchExpectation

from expectations.claim import Claim
from expectations.custom.metric import EVIDENCE
from expectations.sayings import say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from expectations.evidence import Evidence
    from expectations.verdict import Sample

STAYING = {"merge": "the merged segments", "clean": "the cleaned run", "tier": "the new run", "full": "the new tail"}
"""What a lane's output is called in sentences."""

_NEEDS_A_CLAIM = "{} needs a claim, and a batch made by comparison(inputs, outputs)"


class EvidenceExpectation(BatchExpectation):
    """An expectation that reads the shared evidence and fails if one of its `rules` is broken.

    claim     `Claim.to_json()`, with a batch made by `comparison(inputs, outputs)`; where a class has
              `rules_without_claim`, None and any batch of keyed records
    samples   what is shown of offending records, `none`, `keys` or `full` (see `shown`)

    A subclass promises something in one sentence with the plan's figures, and says what was found.
    """

    claim: str | None = None
    samples: Literal["none", "keys", "full"] = "keys"

    metric_dependencies: ClassVar[tuple[str, ...]] = (EVIDENCE,)
    success_keys: ClassVar[tuple[str, ...]] = ("claim", "samples")
    args_keys: ClassVar[tuple[str, ...]] = ("claim", "samples")
    rules: ClassVar[tuple[str, ...]] = ()
    rules_without_claim: ClassVar[tuple[str, ...]] = ()

    @classmethod
    @abstractmethod
    def promise(cls, claim: Claim) -> str:
        """What must hold, as a full sentence with the figures of the plan."""

    @abstractmethod
    def found(self, figures: Mapping[str, int]) -> str:
        """What was measured, in words, where nothing is wrong."""

    @property
    def plan(self) -> Claim:
        """The claim; ValueError where there is none."""
        if self.claim is None:
            raise ValueError(_NEEDS_A_CLAIM.format(type(self).__name__))
        return Claim.from_json(self.claim)

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,  # noqa: ARG002  # Great Expectations' signature
        execution_engine: Any = None,  # noqa: ARG002
    ) -> dict[str, Any]:
        return self.judged(metrics[EVIDENCE])

    def judged(self, evidence: Evidence) -> dict[str, Any]:
        """The result as Great Expectations wants it."""
        rules = self.rules_without_claim if self.claim is None else self.rules
        if not rules:
            raise ValueError(_NEEDS_A_CLAIM.format(type(self).__name__))
        broken = {rule: number for rule in rules if (number := evidence.violations.get(rule, 0))}
        if not broken:
            return met(self.found(evidence.figures))
        return unmet(say(broken), [sample for rule in broken for sample in evidence.samples.get(rule, ())])


def met(observed: str) -> dict[str, Any]:
    """The result of a kept promise."""
    return {"success": True, "result": {"observed_value": observed, "details": {"samples": []}}}


def unmet(observed: str, samples: Sequence[Sample]) -> dict[str, Any]:
    """The result of a broken promise: the observation as a sentence, the samples under `details`."""
    shown = [sample.to_dict() for sample in samples]
    return {"success": False, "result": {"observed_value": observed, "details": {"samples": shown}}}
