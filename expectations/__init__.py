"""Proof for compacted Kafka logs: Great Expectations suites that hold a compaction to Kafka's contract.

Usable without the rest of Firn: `judge(inputs, outputs, claim, reports)` for a whole plan, `judge_all` for many, or
the classes of `expectations.custom` on any Spark batch. Importing this package imports neither Spark nor Great
Expectations.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from expectations.claim import Claim, Lane
    from expectations.docs import build_data_docs
    from expectations.evidence import Evidence, collect_evidence, comparison
    from expectations.judging import JudgementError, judge, judge_all
    from expectations.reading import Reading, fingerprint
    from expectations.suites import suite_for
    from expectations.verdict import Finding, Sample, Verdict

_HOMES = {
    "Claim": "claim",
    "Evidence": "evidence",
    "Finding": "verdict",
    "JudgementError": "judging",
    "Lane": "claim",
    "Reading": "reading",
    "Sample": "verdict",
    "Verdict": "verdict",
    "build_data_docs": "docs",
    "collect_evidence": "evidence",
    "comparison": "evidence",
    "fingerprint": "reading",
    "judge": "judging",
    "judge_all": "judging",
    "suite_for": "suites",
}

__all__ = [
    "Claim",
    "Evidence",
    "Finding",
    "JudgementError",
    "Lane",
    "Reading",
    "Sample",
    "Verdict",
    "build_data_docs",
    "collect_evidence",
    "comparison",
    "fingerprint",
    "judge",
    "judge_all",
    "suite_for",
]


def __getattr__(name: str) -> Any:
    """Imports a public name where it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
