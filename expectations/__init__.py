"""Proof for compacted Kafka logs: promises as SQL that hold what was written to Kafka's contract.

Usable without the rest of Firn: `expectations.judge` finds out what breaks a promise, in records that may come from
anywhere; `verdicts` lets Great Expectations judge the findings and stores the results. Importing this package imports
neither DuckDB, Arrow nor Great Expectations.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from expectations.claim import Claim, Lane
    from expectations.docs import build_data_docs
    from expectations.findings import Findings
    from expectations.fingerprint import Fingerprint
    from expectations.reading import Reading
    from expectations.tables import Part
    from expectations.verdict import Finding, Sample, Verdict

_HOMES = {
    "Claim": "claim",
    "Finding": "verdict",
    "Findings": "findings",
    "Fingerprint": "fingerprint",
    "Lane": "claim",
    "Part": "tables",
    "Reading": "reading",
    "Sample": "verdict",
    "Verdict": "verdict",
    "build_data_docs": "docs",
}

__all__ = [
    "Claim",
    "Finding",
    "Findings",
    "Fingerprint",
    "Lane",
    "Part",
    "Reading",
    "Sample",
    "Verdict",
    "build_data_docs",
]


def __getattr__(name: str) -> Any:
    """Imports a public name where it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
