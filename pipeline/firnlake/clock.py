"""The machine's clock, and conversion of times. Each entry point reads the clock once and passes the time on.

Like Kafka, Firn counts time in milliseconds since the epoch. This module converts the text of ``--now`` and the
``datetime`` of an Airflow run.
"""

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final

from firnlake.errors import RefusedError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_SPAN: Final = re.compile(r"([0-9]{1,15}) ?(d|h|min|s|ms)")
SPANS: Final = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1000, "ms": 1}
"""Milliseconds of each unit of a duration, the largest first."""
AHEAD_MS: Final = SPANS["h"]
"""How far, in milliseconds, the clock of a plan may be ahead of this machine's: clocks of two machines differ."""


def now_ms() -> int:
    """The current time of the machine's clock in milliseconds since the epoch."""
    return to_ms(datetime.now(UTC))


def latest_ms() -> int:
    """The latest clock, in milliseconds since the epoch, of a plan that this machine carries out."""
    return now_ms() + AHEAD_MS


def ahead(at_ms: int) -> str:
    """Why a plan with the clock ``at_ms`` must not be carried out, as the end of a sentence; empty if it may be."""
    latest = latest_ms()
    if at_ms <= latest:
        return ""
    return (
        f"{show_ms(at_ms)} is {show_span(at_ms - latest + AHEAD_MS)} ahead of this machine's clock, "
        f"{show_ms(latest - AHEAD_MS)}; allowed: at most {show_span(AHEAD_MS)}"
    )


def to_ms(moment: datetime) -> int:
    """Convert a timezone-aware ``moment`` to milliseconds since the epoch.

    Raises RefusedError if ``moment`` has no time zone, because such a time is ambiguous.
    """
    if moment.tzinfo is None:
        raise RefusedError(
            f"the time {moment.isoformat()} has no time zone; allowed: a time with zone, such as {moment.isoformat()}Z"
        )
    return (moment - _EPOCH) // _MILLISECOND


def from_ms(milliseconds: int) -> datetime:
    """Convert ``milliseconds`` since the epoch to a UTC ``datetime``."""
    return _EPOCH + milliseconds * _MILLISECOND


CALENDAR: Final = range(to_ms(datetime.min.replace(tzinfo=UTC)), to_ms(datetime.max.replace(tzinfo=UTC)) + 1)
"""The times that Python, and people, have dates for: the years 1 to 9999."""


def show_ms(milliseconds: int) -> str:
    """Format an epoch time for people, in UTC; a time outside Python's calendar is shown as a number."""
    try:
        return from_ms(milliseconds).isoformat(timespec="seconds").replace("+00:00", "Z")
    except OverflowError:
        return f"{milliseconds} ms since the epoch"


def parse(text: str) -> int:
    """Parse ``text``, an ISO 8601 time (in UTC if it has no zone) or epoch milliseconds. Returns epoch milliseconds."""
    try:
        moment = from_ms(int(text)) if text.isdigit() else datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise RefusedError(
            f"{text!r} is not a time; allowed: ISO 8601 (2026-11-21T05:20:00Z) or milliseconds since the epoch"
        ) from error
    return to_ms(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def parse_span(text: str) -> int:
    """Convert a duration such as ``30d``, ``12h`` or ``90 min`` to milliseconds."""
    match = _SPAN.fullmatch(text.strip())
    if not match:
        raise RefusedError(f"{text!r} is not a duration; allowed: a number with a unit (d, h, min, s, ms), such as 30d")
    return int(match[1]) * SPANS[match[2]]


def show_span(milliseconds: int) -> str:
    """A duration, not negative, for people, in its two largest units: ``3 h 20 min``, ``40 s``, ``0 ms``.

    A second or more is shown without the milliseconds, which nobody reads.
    """
    for (unit, length), (smaller, less) in pairwise(SPANS.items()):
        if milliseconds >= length:
            rest = milliseconds % length // less if smaller != "ms" else 0
            return f"{milliseconds // length:,} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{milliseconds} ms"


def exact_span(milliseconds: int) -> str:
    """A duration as settings accept it, in the largest unit that gives a whole number: ``7d``, ``1500ms``, ``-1``."""
    if milliseconds <= 0:
        return str(milliseconds)
    unit, length = next((unit, length) for unit, length in SPANS.items() if milliseconds % length == 0)
    return f"{milliseconds // length}{unit}"
