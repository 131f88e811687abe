"""Row filters of PyIceberg scans, built from values, never from text: a key or a topic could pass for syntax."""

from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, Reference
from pyiceberg.expressions.literals import literal

EVERYTHING: BooleanExpression = AlwaysTrue()


def equals(column: str, value: str | int | bytes | bool) -> BooleanExpression:
    """Filter for rows whose ``column`` is exactly ``value``."""
    return EqualTo(term=Reference(column), value=literal(value))


def both(left: BooleanExpression, right: BooleanExpression) -> BooleanExpression:
    """Filter for rows that pass ``left`` and ``right``."""
    return And(left=left, right=right)
