"""Flips of Python: comparisons, boundaries, booleans and dropped terms, as pieces of source that change places."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

_COMPARISONS: Final = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Lt: ">",
    ast.LtE: ">=",
    ast.Gt: "<",
    ast.GtE: "<=",
}
_BOUNDARIES: Final = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
_OPERATOR: Final = re.compile(r"==|!=|<=|>=|<|>|\bis\s+not\b|\bis\b|\bnot\s+in\b|\bin\b|\band\b|\bor\b|&|\|")
_OTHER: Final = {"and": "or", "or": "and", "&": "|", "|": "&"}


@dataclass(frozen=True, order=True)
class Flip:
    """``text`` in place of ``source[start:end]``."""

    start: int
    end: int
    text: str
    kind: str


def python_flips(source: str) -> Iterator[Flip]:
    """Every flip of ``source``, a module, that leaves it valid; none in what only makes words."""
    tree = ast.parse(source)
    places = _Places(source)
    silent = [_range(places, node) for node in _silent(tree)]
    for node in ast.walk(tree):
        for flip in _flips_of(node, source, places):
            if not any(start <= flip.start < end for start, end in silent) and is_valid(source, flip):
                yield flip


def flipped(source: str, flip: Flip) -> str:
    """``source`` with ``flip``."""
    return source[: flip.start] + flip.text + source[flip.end :]


def is_valid(source: str, flip: Flip) -> bool:
    """True when the module can be parsed with ``flip``, and means something else."""
    try:
        return ast.dump(ast.parse(flipped(source, flip))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def _silent(tree: ast.AST) -> Iterator[ast.AST]:
    """The parts that decide nothing: messages, what returns text, and types."""
    for node in ast.walk(tree):
        match node:
            case ast.JoinedStr() | ast.Raise():
                yield node
            case ast.FunctionDef(returns=ast.Name(id="str")):
                yield node
            case ast.FunctionDef(returns=ast.expr() as kind) | ast.arg(annotation=ast.expr() as kind):
                yield kind
            case ast.AnnAssign(annotation=kind):
                yield kind


class _Places:
    """Places in a text, by the lines and columns (in bytes of UTF-8) of its syntax tree."""

    def __init__(self, source: str) -> None:
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def of(self, line: int, column: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())


def _range(places: _Places, node: ast.AST) -> tuple[int, int]:
    assert isinstance(node, ast.expr | ast.stmt)
    return places.of(node.lineno, node.col_offset), places.of(node.end_lineno or 0, node.end_col_offset or 0)


def _flips_of(node: ast.AST, source: str, places: _Places) -> Iterator[Flip]:
    match node:
        case ast.Compare():
            operands = [node.left, *node.comparators]
            for operator, left, right in zip(node.ops, operands, operands[1:], strict=False):
                start, end = _between(source, places, left, right)
                yield Flip(start, end, _COMPARISONS[type(operator)], "comparison")
                if type(operator) in _BOUNDARIES:
                    yield Flip(start, end, _BOUNDARIES[type(operator)], "boundary")
        case ast.BoolOp():
            yield from _joined(source, places, node.values)
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
            yield from _joined(source, places, [node.left, node.right])
        case ast.UnaryOp(op=ast.Not() | ast.Invert()):
            yield Flip(_range(places, node)[0], _range(places, node.operand)[0], "", "boolean")


def _joined(source: str, places: _Places, values: list[ast.expr]) -> Iterator[Flip]:
    """``and`` for ``or``, and each of the terms left out."""
    for left, right in pairwise(values):
        start, end = _between(source, places, left, right)
        yield Flip(start, end, _OTHER[source[start:end]], "boolean")
        _, right_end = _in_parentheses(source, *_range(places, right))
        yield Flip(len(source[:start].rstrip()), right_end, "", "dropped term")
        left_start, _ = _in_parentheses(source, *_range(places, left))
        yield Flip(left_start, len(source) - len(source[end:].lstrip()), "", "dropped term")


def _between(source: str, places: _Places, left: ast.expr, right: ast.expr) -> tuple[int, int]:
    """The operator between two operands."""
    found = _OPERATOR.search(source, _range(places, left)[1], _range(places, right)[0])
    assert found
    return found.span()


def _in_parentheses(source: str, start: int, end: int) -> tuple[int, int]:
    """The operand with the parentheses around it alone."""
    before, after = source[:start].rstrip(), source[end:].lstrip()
    while before.endswith("(") and after.startswith(")"):
        start, end = len(before) - 1, len(source) - len(after) + 1
        before, after = source[:start].rstrip(), source[end:].lstrip()
    return start, end
