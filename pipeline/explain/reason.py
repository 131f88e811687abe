"""One answer to "why?"."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """Which rule of the contract, in words, and until when (epoch milliseconds) where a clock decides it."""

    rule: str
    text: str
    until_ms: int | None = None
