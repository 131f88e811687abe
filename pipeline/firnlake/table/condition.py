"""A condition on a record's columns, such as ``op = 'd'``: parsed once, then evaluated by cleaner and judge separately.

PyIceberg's parser of row filters parses the condition (PyIceberg docs, "Row filter syntax"). The cleaner evaluates the
parsed expression on Arrow arrays (``mask``), and the judge runs the condition as SQL (``Condition.judged``). Both
follow the rules of SQL, by which a comparison with NULL is neither true nor false.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    AlwaysFalse,
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
    Not,
    NotEqualTo,
    NotIn,
    NotNull,
    NotStartsWith,
    Or,
    Reference,
    SetPredicate,
    StartsWith,
    UnboundPredicate,
)
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.parser import parse
from pyiceberg.types import BooleanType, IntegerType, LongType, NestedField, StringType
from pyparsing import ParseException

from firnlake.errors import RefusedError

ALLOWED = (
    "comparisons of a boolean, int, long or string column with a constant of its type (=, !=, <, <=, >, >=, IN, "
    "BETWEEN, LIKE 'start%'), IS NULL, IS NOT NULL, AND, OR, NOT"
)
_OPERATORS = {
    EqualTo: "=",
    NotEqualTo: "<>",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}
_COMPARED = {
    EqualTo: pc.equal,
    NotEqualTo: pc.not_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
}


@dataclass(frozen=True)
class Condition:
    """A checked condition.

    ``sql`` is the condition in standard SQL, and ``expression`` is its parsed form; both use the columns' current
    names. ``columns`` are the columns' names in the original text, and ``reads`` are their current names. ``judged`` is
    the SQL as DuckDB runs it: in it, the columns are called `told_0`, `told_1`, … in the order of ``reads``. If the
    condition is only that one column is NULL, ``null_of`` is this column's current name; otherwise None.
    """

    sql: str
    expression: BooleanExpression
    columns: tuple[str, ...] = field(compare=False)
    reads: tuple[str, ...]
    judged: str
    null_of: str | None

    @classmethod
    def read(cls, text: str, fields: Mapping[str, NestedField], subject: str) -> "Condition":
        """Parse ``text``, whose column names are the keys of ``fields``.

        Raises RefusedError, whose message begins with ``subject``, for a text that does not parse, an unknown column,
        or a comparison that cleaner and judge might evaluate differently.
        """
        try:
            expression = parse(text)
        except (ParseException, ValueError) as error:
            raise RefusedError(f"{subject} {text!r} is not understood; allowed: {ALLOWED}") from error
        writer = _Sql(text, fields, subject)
        sql = writer.write(expression)
        present = {name: fields[name].name for name in writer.seen}
        reads = tuple(sorted(present.values()))
        places = {name: f"told_{place}" for place, name in enumerate(reads)}
        return cls(
            sql,
            _renamed(expression, present),
            tuple(sorted(present)),
            reads,
            replace(writer, places=places).write(expression),
            _null_of(expression, fields),
        )


def quoted(name: str) -> str:
    """Quote a column name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def _null_of(expression: BooleanExpression, fields: Mapping[str, NestedField]) -> str | None:
    if isinstance(expression, IsNull) and isinstance(expression.term, Reference):
        return fields[expression.term.name].name
    return None


def mask(condition: BooleanExpression, batch: pa.RecordBatch | pa.Table) -> pa.BooleanArray:
    """A mask of the records of ``batch`` for which ``condition`` is true; NULL counts as false.

    The condition uses the column names of ``batch``.
    """
    meant = pc.fill_null(_evaluated(condition, batch), fill_value=False)
    return meant.combine_chunks() if isinstance(meant, pa.ChunkedArray) else meant


def _renamed(expression: BooleanExpression, names: Mapping[str, str]) -> BooleanExpression:
    """``expression`` with its columns renamed; ``names`` maps each former name to the current one."""
    match expression:
        case Not():
            return Not(_renamed(expression.child, names))
        case And() | Or():
            return type(expression)(_renamed(expression.left, names), _renamed(expression.right, names))
        case SetPredicate():
            return type(expression)(Reference(names[_name(expression)]), expression.literals)
        case LiteralPredicate():
            return type(expression)(Reference(names[_name(expression)]), expression.literal)
        case UnboundPredicate():
            return type(expression)(Reference(names[_name(expression)]))
        case _:
            return expression


def _evaluated(expression: BooleanExpression, batch: pa.RecordBatch | pa.Table) -> pa.BooleanArray:
    """``expression`` for every record of ``batch``: true, false or NULL."""
    match expression:
        case AlwaysTrue() | AlwaysFalse():
            return pa.repeat(pa.scalar(isinstance(expression, AlwaysTrue)), batch.num_rows)
        case Not():
            return pc.invert(_evaluated(expression.child, batch))
        case And():
            return pc.and_kleene(_evaluated(expression.left, batch), _evaluated(expression.right, batch))
        case Or():
            return pc.or_kleene(_evaluated(expression.left, batch), _evaluated(expression.right, batch))
        case UnboundPredicate():
            return _compared(expression, batch[_name(expression)])
        case _:
            raise TypeError(f"{expression} is not an expression that the parser makes")


def _compared(predicate: UnboundPredicate, values: pa.Array | pa.ChunkedArray) -> pa.BooleanArray:
    match predicate:
        case IsNull():
            return pc.is_null(values)
        case NotNull():
            return pc.is_valid(values)
        case StartsWith():
            return pc.starts_with(values, predicate.literal.value)
        case NotStartsWith():
            return pc.invert(pc.starts_with(values, predicate.literal.value))
        case SetPredicate():
            return _among(values, predicate)
        case LiteralPredicate():
            return _COMPARED[type(predicate)](values, pa.scalar(predicate.literal.value))
        case _:
            raise TypeError(f"{predicate} is not a predicate that a condition may use")


def _among(values: pa.Array, predicate: SetPredicate) -> pa.BooleanArray:
    wanted = pa.array([literal.value for literal in predicate.literals])
    kind = pa.string() if pa.types.is_string(wanted.type) else wanted.type
    member = pc.is_in(values.cast(kind), value_set=wanted)
    # In Arrow, NULL is in no set; in SQL, `NULL IN (…)` is NULL.
    member = pc.if_else(pc.is_valid(values), member, pa.scalar(None, pa.bool_()))
    return pc.invert(member) if isinstance(predicate, NotIn) else member


def _name(predicate: UnboundPredicate) -> str:
    return predicate.term.name if isinstance(predicate.term, Reference) else str(predicate.term)


@dataclass
class _Sql:
    """Writes a parsed condition as standard SQL; refuses parts that cleaner and judge might evaluate differently."""

    text: str
    fields: Mapping[str, NestedField]
    subject: str
    places: Mapping[str, str] = field(default_factory=dict)
    """Names in the SQL, by the current names of the columns; any other column has its current name, in quotes."""
    seen: set[str] = field(default_factory=set)

    def write(self, expression: BooleanExpression) -> str:
        """``expression`` as SQL."""
        match expression:
            case AlwaysTrue():
                return "TRUE"
            case AlwaysFalse():
                return "FALSE"
            case Not():
                return f"NOT {self.write(expression.child)}"
            case And():
                return f"({self.write(expression.left)} AND {self.write(expression.right)})"
            case Or():
                return f"({self.write(expression.left)} OR {self.write(expression.right)})"
            case UnboundPredicate():
                return self._predicate(expression)
            case _:
                raise self._refused(f"{expression} is not an expression that the parser makes")

    def _predicate(self, predicate: UnboundPredicate) -> str:
        column = self._column(predicate)
        name = self.places.get(column.name) or quoted(column.name)
        match predicate:
            case IsNull():
                return f"({name} IS NULL)"
            case NotNull():
                return f"({name} IS NOT NULL)"
            case StartsWith() | NotStartsWith():
                starts = f"starts_with({name}, {self._constant(column, predicate.literal)})"
                return starts if isinstance(predicate, StartsWith) else f"(NOT {starts})"
            case In() | NotIn():
                # A set of literals has no order, but the text must be the same in every process.
                constants = ", ".join(sorted(self._constant(column, value) for value in predicate.literals))
                return f"({name} {'IN' if isinstance(predicate, In) else 'NOT IN'} ({constants}))"
            case LiteralPredicate() if type(predicate) in _OPERATORS:
                return f"({name} {_OPERATORS[type(predicate)]} {self._constant(column, predicate.literal)})"
            case _:
                raise self._refused(f"{type(predicate).__name__} is not allowed")

    def _column(self, predicate: UnboundPredicate) -> NestedField:
        name = _name(predicate)
        if name not in self.fields:
            raise self._refused(f"there is no column {name}; found: {', '.join(self.fields)}")
        self.seen.add(name)
        return self.fields[name]

    def _constant(self, column: NestedField, literal: Literal[Any]) -> str:
        value = literal.value
        kind = column.field_type
        match value:
            case bool() if isinstance(kind, BooleanType):
                return "TRUE" if value else "FALSE"
            case int() if (
                not isinstance(value, bool) and isinstance(kind, IntegerType | LongType) and -(2**63) < value < 2**63
            ):
                return str(value)
            case str():
                if isinstance(kind, StringType):
                    return "'" + value.replace("'", "''") + "'"
        raise self._refused(f"column {column.name} is {kind}, but is compared with {value!r}")

    def _refused(self, problem: str) -> RefusedError:
        return RefusedError(f"{self.subject} {self.text!r}: {problem}; allowed: {ALLOWED}")
