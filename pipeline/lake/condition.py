"""A condition on a record's columns, such as ``op = 'd'``, in the part of SQL that PyIceberg and Spark read alike.

PyIceberg's row filter syntax parses it without a JVM (PyIceberg docs, "Row filter syntax"); what Spark is given is
written from what was parsed, so both sides mean the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.expressions import (
    BooleanExpression,
    BoundPredicate,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    LiteralPredicate,
    NotEqualTo,
    NotIn,
    NotNull,
    NotStartsWith,
    Reference,
    SetPredicate,
    StartsWith,
    UnboundPredicate,
)
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import BooleanExpressionVisitor, visit
from pyiceberg.types import BooleanType, IntegerType, LongType, NestedField, StringType
from pyparsing import ParseException

from pipeline.errors import RefusedError

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


@dataclass(frozen=True)
class Condition:
    """A checked condition.

    ``sql`` is Spark's text, with the columns' present names; ``columns`` are the names that the original text uses;
    ``null_of`` is the column's present name when the condition is just that it is NULL.
    """

    sql: str
    columns: tuple[str, ...]
    null_of: str | None

    @classmethod
    def read(cls, text: str, fields: Mapping[str, NestedField], subject: str) -> "Condition":
        """Parse ``text``, in which a column is called what ``fields`` has for it.

        Raises RefusedError, beginning with ``subject``, for a text that does not parse, an unknown column, or a
        comparison whose meaning would differ between PyIceberg and Spark.
        """
        try:
            expression = parse(text)
        except (ParseException, ValueError) as error:
            raise RefusedError(f"{subject} {text!r} is not understood; allowed: {ALLOWED}") from error
        writer = _SparkSql(text, fields, subject)
        sql = visit(expression, writer)
        return cls(sql, tuple(sorted(writer.seen)), _null_of(expression, fields))


def quoted(name: str) -> str:
    """A column name as Spark SQL quotes it."""
    return "`" + name.replace("`", "``") + "`"


def _null_of(expression: BooleanExpression, fields: Mapping[str, NestedField]) -> str | None:
    if isinstance(expression, IsNull) and isinstance(expression.term, Reference):
        return fields[expression.term.name].name
    return None


@dataclass
class _SparkSql(BooleanExpressionVisitor[str]):
    """Writes a parsed condition as Spark SQL and refuses what Spark might understand otherwise."""

    text: str
    fields: Mapping[str, NestedField]
    subject: str
    seen: set[str] = field(default_factory=set)

    def visit_true(self) -> str:
        return "TRUE"

    def visit_false(self) -> str:
        return "FALSE"

    def visit_not(self, child_result: str) -> str:
        return f"NOT {child_result}"

    def visit_and(self, left_result: str, right_result: str) -> str:
        return f"({left_result} AND {right_result})"

    def visit_or(self, left_result: str, right_result: str) -> str:
        return f"({left_result} OR {right_result})"

    def visit_bound_predicate(self, predicate: BoundPredicate) -> str:
        raise self._refused(f"{predicate} is bound")

    def visit_unbound_predicate(self, predicate: UnboundPredicate) -> str:
        column = self._column(predicate)
        name = quoted(column.name)
        match predicate:
            case IsNull():
                return f"({name} IS NULL)"
            case NotNull():
                return f"({name} IS NOT NULL)"
            case StartsWith() | NotStartsWith():
                starts = f"startswith({name}, {self._constant(column, predicate.literal)})"
                return starts if isinstance(predicate, StartsWith) else f"(NOT {starts})"
            case In() | NotIn():
                # A set of literals has no order; the text must be the same in every process.
                constants = ", ".join(sorted(self._constant(column, value) for value in _literals(predicate)))
                return f"({name} {'IN' if isinstance(predicate, In) else 'NOT IN'} ({constants}))"
            case LiteralPredicate() if type(predicate) in _OPERATORS:
                return f"({name} {_OPERATORS[type(predicate)]} {self._constant(column, predicate.literal)})"
            case _:
                raise self._refused(f"{type(predicate).__name__} is not among them")

    def _column(self, predicate: UnboundPredicate) -> NestedField:
        name = predicate.term.name if isinstance(predicate.term, Reference) else str(predicate.term)
        if name not in self.fields:
            raise self._refused(f"it names column {name}, found: {', '.join(self.fields)}")
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
                return f"{value}L"
            case str():
                if isinstance(kind, StringType):
                    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        raise self._refused(f"column {column.name} is {kind}, compared with {value!r}")

    def _refused(self, found: str) -> RefusedError:
        return RefusedError(f"{self.subject} {self.text!r}: {found}; allowed: {ALLOWED}")


def _literals(predicate: UnboundPredicate) -> set[Literal[Any]]:
    return predicate.literals if isinstance(predicate, SetPredicate) else set()
