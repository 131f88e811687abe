"""The values of key columns as people write them: which text is a value of which type, and no other."""

import re
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Context, Decimal
from typing import Any, Final

from pyiceberg.expressions.literals import AboveMax, BelowMin, Literal, literal
from pyiceberg.types import BinaryType, DecimalType, FixedType, IcebergType, NestedField, TimestampType, TimestamptzType

from firnlake.errors import RefusedError

_DATE: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME: Final = rf"{_DATE}[T ][0-9]{{2}}:[0-9]{{2}}(?::[0-9]{{2}}(?:\.[0-9]{{1,6}})?)?"
_FORMS: Final = {
    "boolean": ("(?i:true|false)", "true"),
    "int": ("[+-]?[0-9]+", "42"),
    "long": ("[+-]?[0-9]+", "42"),
    "decimal": (r"[+-]?[0-9]+(?:\.[0-9]+)?", ""),
    "date": (_DATE, "2026-01-31"),
    "timestamp": (_TIME, "2026-01-31T12:00:00"),
    "timestamptz": (f"{_TIME}(?:Z|[+-][0-9]{{2}}:?[0-9]{{2}})", "2026-01-31T12:00:00Z"),
    "uuid": ("(?i:[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12})", "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
    "string": ("(?s:.*)", "alice"),
    "fixed": ("", "hex:00ff"),
}
"""The look of a value of each type, and an example. PyIceberg's literals read more, and cut off fractions."""


def key_value(part: bytes, column: NestedField) -> Literal[Any]:
    """The value of key ``column`` that ``part`` gives: the bytes of a binary value, or the UTF-8 text of another one.

    Raises RefusedError, with an example, for a text that is not exactly one value of the column's type.
    """
    kind = column.field_type
    looks, example = _FORMS.get(re.split("[^a-z]", str(kind))[0], ("", ""))
    found: Literal[Any] | None = None
    with suppress(ArithmeticError, TypeError, ValueError):
        if isinstance(kind, BinaryType | FixedType):
            found = literal(part).to(kind)
        elif re.fullmatch(looks, part.decode()):
            found = literal(_normal(part.decode(), kind)).to(kind)
    if isinstance(kind, DecimalType):
        example = f"{0.5 if kind.precision == kind.scale else 1.5 if kind.scale else 1:.{kind.scale}f}"
    if found is None or isinstance(found, AboveMax | BelowMin):
        shown = part.decode(errors="backslashreplace")
        raise RefusedError(
            f"column {column.name} can't hold key {shown!r}: no {kind}; allowed: {kind}, such as {example}"
        )
    return found


def _normal(text: str, kind: IcebergType) -> str:
    """The ``text`` as PyIceberg reads it without loss; it refuses a decimal of another scale."""
    match kind:
        case DecimalType():
            value = Decimal(text).quantize(Decimal(1).scaleb(-kind.scale), context=Context(prec=kind.precision))
            return f"{value:f}" if value == Decimal(text) else text
        case TimestampType():
            return datetime.fromisoformat(text).isoformat()
        case TimestamptzType():
            return datetime.fromisoformat(text).astimezone(UTC).isoformat()
        case _:
            return text
