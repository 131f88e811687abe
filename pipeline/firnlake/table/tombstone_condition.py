"""A condition on a record's columns, such as ``op = 'd'``: parsed once, then evaluated by cleaner and judge separately.

PyIceberg's parser of row filters parses the condition (PyIceberg docs, "Row filter syntax"). The cleaner evaluates it
on Arrow arrays (``Condition.mask``), and the judge runs it as SQL (``Condition.judged``). Both follow the rules of SQL,
by which a comparison with NULL is not true. As a parsed condition has no NOT and no IN, a comparison that is not true
may count as false.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    LiteralPredicate,
    NotEqualTo,
    NotNull,
    NotStartsWith,
    Or,
    Reference,
    SetPredicate,
    StartsWith,
    UnboundPredicate,
)
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import rewrite_not
from pyiceberg.types import BooleanType, IntegerType, LongType, NestedField, StringType
from pyparsing import ParseException

from firnlake.errors import RefusedError

ALLOWED: Final = (
    "comparisons of a boolean, int, long or string column with a constant of its type (=, !=, <, <=, >, >=, IN, "
    "BETWEEN, LIKE 'start%'), IS NULL, IS NOT NULL, AND, OR, NOT"
)
_COMPARISONS: Final[Mapping[type, tuple[str, Callable[..., pa.Array]]]] = {
    IsNull: ("{} IS NULL", pc.is_null),
    NotNull: ("{} IS NOT NULL", pc.is_valid),
    EqualTo: ("{} = {}", pc.equal),
    NotEqualTo: ("{} <> {}", pc.not_equal),
    LessThan: ("{} < {}", pc.less),
    LessThanOrEqual: ("{} <= {}", pc.less_equal),
    GreaterThan: ("{} > {}", pc.greater),
    GreaterThanOrEqual: ("{} >= {}", pc.greater_equal),
    StartsWith: ("starts_with({}, {})", pc.starts_with),
    NotStartsWith: ("NOT starts_with({}, {})", lambda values, start: pc.invert(pc.starts_with(values, start))),
}
"""The allowed comparisons, each in the judge's SQL and as a function of Arrow."""
_CONSTANTS: Final[Mapping[type, tuple[type, ...]]] = {
    bool: (BooleanType,),
    int: (IntegerType, LongType),
    str: (StringType,),
}
"""Types of constants, and of the columns with which both sides compare them alike."""


@dataclass(frozen=True)
class Condition:
    """A checked condition."""

    text: str = field(compare=False)
    """As a person wrote it; columns may have been renamed since."""
    expression: BooleanExpression
    """The parsed condition, by the columns' current names."""
    reads: tuple[str, ...]
    """The current names of the columns in it, sorted."""

    @classmethod
    def read(cls, text: str, fields: Mapping[str, NestedField], subject: str) -> "Condition":
        """Parse ``text``, whose column names are the keys of ``fields``.

        Raises RefusedError, whose message begins with ``subject``, for a text that does not parse, an unknown column,
        or a comparison that cleaner and judge might evaluate differently.
        """
        try:
            parsed = rewrite_not(parse(text))
        except (ParseException, ValueError) as error:
            raise RefusedError(f"{subject} {text!r} is not understood; allowed: {ALLOWED}") from error
        columns: set[str] = set()
        try:
            expression = _resolved(parsed, fields, columns)
        except ValueError as error:
            raise RefusedError(f"{subject} {text!r}: {error}; allowed: {ALLOWED}") from error
        return cls(text, expression, tuple(sorted(columns)))

    @property
    def judged(self) -> str:
        """SQL for DuckDB, in which the columns are called `told_0`, `told_1`, … in the order of ``reads``."""
        return _sql(self.expression, {name: f"told_{number}" for number, name in enumerate(self.reads)})

    @property
    def null_of(self) -> str | None:
        """The column that the condition only compares with NULL; None if the condition is a different one."""
        return self.reads[0] if isinstance(self.expression, IsNull) else None

    def mask(self, records: pa.RecordBatch | pa.Table) -> pa.BooleanArray:
        """A mask of the ``records`` for which the condition is true; it has no NULL."""
        met = _met(self.expression, records)
        return met.combine_chunks() if isinstance(met, pa.ChunkedArray) else met


def _resolved(expression: BooleanExpression, fields: Mapping[str, NestedField], seen: set[str]) -> BooleanExpression:
    """``expression`` with the columns' current names, which are added to ``seen``, and without IN.

    Raises ValueError for what is not allowed.
    """
    match expression:
        case And() | Or():
            return type(expression)(_resolved(expression.left, fields, seen), _resolved(expression.right, fields, seen))
        case SetPredicate():
            join, compare = (Or, EqualTo) if isinstance(expression, In) else (And, NotEqualTo)
            # A set of literals has no order, but the condition must be the same in every process.
            constants = sorted(expression.literals, key=repr)
            return join(*(_resolved(compare(term=expression.term, value=one), fields, seen) for one in constants))
        case UnboundPredicate():
            name = expression.term.name if isinstance(expression.term, Reference) else str(expression.term)
            if name not in fields:
                raise ValueError(f"there is no column {name}; found: {', '.join(fields)}")
            if type(expression) not in _COMPARISONS:
                raise ValueError(f"{type(expression).__name__} is not allowed")
            current = fields[name].name
            seen.add(current)
            if not isinstance(expression, LiteralPredicate):
                return type(expression)(Reference(current))
            value, kind = expression.literal.value, fields[name].field_type
            if not isinstance(kind, _CONSTANTS.get(type(value), ())) or (type(value) is int and abs(value) >= 2**63):
                raise ValueError(f"column {current} is {kind}, but is compared with {value!r}")
            return type(expression)(Reference(current), expression.literal)
        case _:
            return expression


def _sql(expression: BooleanExpression, names: Mapping[str, str]) -> str:
    match expression:
        case And() | Or():
            joined = "AND" if isinstance(expression, And) else "OR"
            return f"({_sql(expression.left, names)} {joined} {_sql(expression.right, names)})"
        case UnboundPredicate():
            constants = [_constant(expression.literal.value)] if isinstance(expression, LiteralPredicate) else []
            return f"({_COMPARISONS[type(expression)][0].format(names[_column(expression)], *constants)})"
        case _:
            return _constant(isinstance(expression, AlwaysTrue))


def _constant(value: Any) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value).upper()


def _met(expression: BooleanExpression, records: pa.RecordBatch | pa.Table) -> pa.BooleanArray | pa.ChunkedArray:
    match expression:
        case And() | Or():
            join = pc.and_ if isinstance(expression, And) else pc.or_
            return join(_met(expression.left, records), _met(expression.right, records))
        case UnboundPredicate():
            constants = [expression.literal.value] if isinstance(expression, LiteralPredicate) else []
            compared = _COMPARISONS[type(expression)][1](records[_column(expression)], *constants)
            return pc.fill_null(compared, fill_value=False)
        case _:
            return pa.repeat(pa.scalar(isinstance(expression, AlwaysTrue)), records.num_rows)


def _column(predicate: UnboundPredicate) -> str:
    assert isinstance(predicate.term, Reference)  # ``_resolved`` has made it
    return predicate.term.name
