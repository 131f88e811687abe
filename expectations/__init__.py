"""Proof for compacted Kafka logs: promises, as SQL, that check the output against Kafka's contract.

Usable without the rest of Firn: `expectations.judge` finds what breaks a promise, in records from any source;
`verdicts` has Great Expectations judge the findings and stores the results. Importing this package imports neither
DuckDB, Arrow nor Great Expectations.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from expectations.claim import Claim, Lane
    from expectations.column_mapping import Reading
    from expectations.findings import Findings
    from expectations.fingerprint import Fingerprint
    from expectations.gx_process import build_data_docs
    from expectations.tables import Part
    from expectations.verdict import Finding, Sample, Verdict

_HOMES = {
    "Claim": "claim",
    "Finding": "verdict",
    "Findings": "findings",
    "Fingerprint": "fingerprint",
    "Lane": "claim",
    "Part": "tables",
    "Reading": "column_mapping",
    "Sample": "verdict",
    "Verdict": "verdict",
    "build_data_docs": "gx_process",
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
    """Import a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
