"""How many examples a test tries: random histories, and the inputs of fuzz tests, bytes that were valid once.

At most MOST histories are tried in a run of the suite, and always the same ones where a test says so; ``FIRN_EXAMPLES``
says how many times the number that a test names (``make histories``). Any input gives a result or a refusal in one
line; few are tried unless ``FIRN_FUZZ_EXAMPLES`` says more (``make fuzz``).
"""

import os
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from firnlake.errors import FirnError

T = TypeVar("T")

EXAMPLES = int(os.environ.get("FIRN_FUZZ_EXAMPLES", "50"))
fuzzed = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)

LENGTHS = tuple(
    number.to_bytes(width, order, signed=number < 0)
    for width in (1, 2, 4, 8)
    for order in ("little", "big")
    for number in (0, 1, -1, 2 ** (8 * width - 1) - 1, -(2 ** (8 * width - 1)))
)
"""Values of damaged length fields."""
fuzzed_less = settings(fuzzed, max_examples=max(10, EXAMPLES // 5))
"""For what takes a commit each time."""

HOSTILE_NAMES = (
    *("", ".", "..", "../..", "/etc/passwd", "a/../../b", "%2e%2e%2f", "50%", "\\..\\", "~", "$HOME", "-", "--help"),
    *("'; DROP TABLE t; --", "it's", '"so"', "`t`", "``", "a`.`b", "\\'", "\\"),
    *("{{ 7 * 7 }}", "${x}", "$x", "{0}", "%s"),
    *("<script>alert(1)</script>", "<b>", "&amp;", "' onerror='x", "[x](http://evil.example)", "| a | b |", "[bold]x"),
    *("a\nb", "a\rb", "a\tb", "\x00", "a\x00b", "\x1b[31mred", "\x1b]0;title\x07"),
    *("\u202etxt.exe", "\u2066x", "\ufeff"),
    *("größe é", "\U0001f4a9", "_firn", "firn_quarantine", "x/0123456789abcdef", "t" * 249),
)
"""Names that mean something to a shell, SQL, a file system, HTML, Markdown, a template, a terminal, or Firn."""


def refused_or(action: Callable[[], T]) -> T | FirnError:
    """The result of ``action``, or its refusal in one line; anything else is a defect."""
    try:
        return action()
    except FirnError as error:
        message = str(error)
        assert message
        assert len(message.splitlines()) == 1, message
        assert len(message) < 20_000, len(message)
        return error


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Bytes of ``whole``, cut off, flipped, repeated, or with lengths that are none."""
    content = bytearray(draw(whole))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(content) - 1)))
        end = draw(st.integers(at, min(len(content), at + 64)))
        match draw(st.sampled_from(("cut", "flip", "length", "repeat", "drop", "insert"))):
            case "cut":
                del content[at:]
            case "flip" if content:
                content[at] ^= 1 << draw(st.integers(0, 7))
            case "length":
                length = draw(st.sampled_from(LENGTHS))
                content[at : at + len(length)] = length
            case "repeat":
                content[at:at] = content[at:end]
            case "drop":
                del content[at:end]
            case _:
                content[at:at] = draw(st.binary(min_size=1, max_size=16))
    return bytes(content)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(2**62, 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(HOSTILE_NAMES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
"""Any JSON value, NaN and numbers that no column holds among them."""


MOST: Final = 20
TIMES: Final = int(os.environ.get("FIRN_EXAMPLES", "0"))
"""Zero in a run of the suite."""


def times(few: int) -> int:
    """``few`` examples, or MOST if that is less, in a run of the suite; on request, a multiple of ``few``."""
    return few * TIMES or min(few, MOST)


def bounded(few: int, phases: Sequence[Phase] = tuple(Phase)) -> settings:
    """Settings for ``times(few)`` random histories, always the same ones, each in a table of its own."""
    return settings(
        max_examples=times(few),
        phases=phases,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
