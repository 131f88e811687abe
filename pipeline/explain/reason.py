"""The answer to one "why?"."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """A rule of the contract, the reason in words, and until when it holds (epoch milliseconds) if a clock decides."""

    rule: str
    text: str
    until_ms: int | None = None
