"""Offsets and times that a person asks a run to keep to: whole segments, as everywhere."""

from dataclasses import dataclass

from pipeline.clock import show_ms
from pipeline.segments import Segment


@dataclass(frozen=True)
class ScopeBounds:
    """Segments whose records all lie in here, ends included; None: no bound. Times are epoch milliseconds.

    A segment that reaches past an upper bound is left alone and so is all past it, as what is too young is (C11).
    """

    from_offset: int | None = None
    until_offset: int | None = None
    from_ms: int | None = None
    until_ms: int | None = None

    @property
    def begins(self) -> bool:
        """True when the bounds leave out the beginning of the log."""
        return self.from_offset is not None or self.from_ms is not None

    def passed_by(self, segment: Segment) -> str | None:
        """Why ``segment`` reaches past the upper bounds; None when it does not."""
        if self.until_offset is not None and segment.last_offset > self.until_offset:
            return f"past offset {self.until_offset}, the upper bound of this run"
        if self.until_ms is not None and segment.newest_ms > self.until_ms:
            return f"newer than {show_ms(self.until_ms)}, the upper bound of this run"
        return None

    def hold(self, segment: Segment) -> bool:
        """True when all of ``segment`` lies within."""
        early = self.from_offset is not None and segment.base_offset < self.from_offset
        old = self.from_ms is not None and segment.oldest_ms < self.from_ms
        return not early and not old and self.passed_by(segment) is None

    def __str__(self) -> str:
        """Such as ``offsets 100..``; empty without a bound."""
        offsets = _between(self.from_offset, self.until_offset)
        times = _between(
            None if self.from_ms is None else show_ms(self.from_ms),
            None if self.until_ms is None else show_ms(self.until_ms),
        )
        return ", ".join(f"{name} {text}" for name, text in (("offsets", offsets), ("times", times)) if text)


UNBOUNDED = ScopeBounds()


def _between(first: object, last: object) -> str:
    if first is None and last is None:
        return ""
    return f"{'' if first is None else first}..{'' if last is None else last}"
