"""Finds the type of a column whose file has only text for it, without changing what any value means."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_DATE: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME: Final = f"{_DATE}(?:[T ][0-9]{{2}}:[0-9]{{2}}(?::[0-9]{{2}}(?:\\.[0-9]{{1,6}})?)?"
_ZONE: Final = "(?:Z|[-+][0-9]{2}:?[0-9]{2})"
_FRACTION: Final = (
    r"-?(?:0|0?\.[0-9]{1,17}|0?\.0+[1-9][0-9]{0,16}|[1-9](?:\.?[0-9]){0,16})(?:[eE][-+]?[0-9]{1,2})?|nan|NaN"
)
"""Numbers with at most 17 digits, because a double stands for 17 digits at most, and for no exponent above 308."""
_LONG_WHOLE: Final = "-?[0-9]{16,}"
"""Whole numbers that a double may not hold exactly."""

TIMES: Final = (
    (_DATE, pa.date32()),
    (f"{_TIME})?", pa.timestamp("us")),
    (f"{_TIME}{_ZONE})", pa.timestamp("us", "UTC")),
)
"""Dates and times in ISO 8601: how they look, and their type."""

EVERYTHING: Final = (
    ("0|-?[1-9][0-9]*", pa.int64()),
    (_FRACTION, pa.float64()),
    ("true|false", pa.bool_()),
    *TIMES,
)
"""All that text may stand for. A number with leading zeros, such as 007, is text, because it is probably a name."""


def typed(text: pa.ChunkedArray, types: Sequence[tuple[str, pa.DataType]] = EVERYTHING) -> pa.ChunkedArray:
    """The column ``text`` in the first of ``types`` that all its values have; as it is if there is none.

    NULL has every type; a column without a value has Arrow's type null.
    """
    if text.null_count == len(text):
        return pa.chunked_array([pa.nulls(len(text))])
    for looks, kind in types:
        if _all_match(text, looks) and not (pa.types.is_floating(kind) and _some_match(text, _LONG_WHOLE)):
            try:
                return text.cast(kind)
            except pa.ArrowInvalid:
                continue  # for example, a day that the calendar lacks, or a number that no long holds
    return text


def _all_match(text: pa.ChunkedArray, looks: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(text, f"^(?:{looks})$")).as_py())


def _some_match(text: pa.ChunkedArray, looks: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(text, f"^(?:{looks})$")).as_py())
