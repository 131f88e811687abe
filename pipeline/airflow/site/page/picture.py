"""Pictures of levels: inline SVG, coloured by the page's style (classes ``l0`` to ``l3``) in light and dark mode."""

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from pipeline.airflow.site.page.wording import percent, size

_RECT = Markup('<rect class="l{}" x="{:.3f}" y="0" width="{:.3f}" height="10"><title>{}</title></rect>')
_BAR = Markup('<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>')
VISIBLE = 1.0
"""Minimum width of a level that is not empty, in hundredths of the bar."""


def stacked(amounts: Sequence[int]) -> Markup:
    """A bar divided by the bytes of each level, L0 first."""
    total = sum(amounts)
    if not total:
        return _BAR.format("no data", "")
    widths = [max(VISIBLE, 100 * amount / total) if amount else 0.0 for amount in amounts]
    scale = 100 / sum(widths)
    place, rects, said = 0.0, [], []
    for level, (amount, width) in enumerate(zip(amounts, widths, strict=True)):
        if amount:
            text = f"L{level} {size(amount)}, {percent(amount / total)}"
            rects.append(_RECT.format(level, place, width * scale, text))
            said.append(text)
            place += width * scale
    return _BAR.format("; ".join(said), _together(rects))


def alone(level: int, amount: int, largest: int) -> Markup:
    """A bar for the bytes of one level, to scale with others, of which the largest fills its bar."""
    width = max(VISIBLE, 100 * amount / largest) if amount else 0.0
    text = f"L{level} {size(amount)}"
    return _BAR.format(text, _RECT.format(level, 0.0, width, text))


def _together(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(parts)
