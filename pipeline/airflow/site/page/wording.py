"""Formatting of sizes, shares, times and durations on the pages."""

from pipeline.clock import show_ms

_SIZES = ("B", "kB", "MB", "GB", "TB", "PB")
_SPANS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))
NOTHING = "–"


def number(value: int | None) -> str:
    """``1,234``; a dash for None."""
    return NOTHING if value is None else f"{value:,}"


def size(value: int | None) -> str:
    """Bytes in decimal units: ``812 B``, ``12.3 MB``; negative for growth instead of savings; a dash for None."""
    if value is None:
        return NOTHING
    amount, unit = float(value), _SIZES[0]
    for unit in _SIZES:
        if abs(amount) < 1000 or unit == _SIZES[-1]:
            break
        amount /= 1000
    return f"{value:,} B" if unit == "B" else f"{amount:,.1f} {unit}"


def percent(ratio: float) -> str:
    """A ratio from 0 to 1 as ``62 %``; rounded down, so that 100 % means all of it."""
    return f"{int(ratio * 100)} %"


def ratio(value: float | None) -> str:
    """``1.42``; a dash for None."""
    return NOTHING if value is None else f"{value:,.2f}"


def ago(at_ms: int, now_ms: int) -> str:
    """The time since ``at_ms`` in the largest unit: ``3 h ago``. The clocks of two machines may differ a little."""
    passed = now_ms - at_ms
    for unit, length in _SPANS:
        if passed >= length:
            return f"{passed // length:,} {unit} ago"
    return "just now"


def span(milliseconds: int | None) -> str:
    """A duration in its two largest units: ``3 h 20 min``, ``40 s``; a dash for None."""
    if milliseconds is None:
        return NOTHING
    for place, (unit, length) in enumerate(_SPANS):
        if milliseconds >= length:
            whole, left = divmod(milliseconds, length)
            smaller, less = _SPANS[place + 1] if place + 1 < len(_SPANS) else ("", 0)
            rest = left // less if less else 0
            return f"{whole:,} {unit} {rest} {smaller}" if rest else f"{whole:,} {unit}"
    return f"{milliseconds} ms"


def moment(milliseconds: int) -> str:
    """``2026-11-21 05:20:00`` in UTC."""
    return show_ms(milliseconds).replace("T", " ").removesuffix("Z")
