"""Flips of SQL in strings, by tokens: comparisons, boundaries, booleans and dropped terms."""

import ast
import re
from collections.abc import Iterator
from typing import Final

from tests.nets.python_flips import Flip, is_valid

_SQL: Final = re.compile(
    r"\b(SELECT|CASE|WHERE|HAVING|FILTER|THEN|JOIN|AND|OR|NOT|IS)\b|\b(coalesce|greatest|least|count_if)\("
    r"|^f?[\"']\w+ (?:<=|>=|!=|=|<|>) \w+[\"']$"
)
_TOKEN: Final = re.compile(
    r"IS NOT DISTINCT FROM|IS DISTINCT FROM|IS NOT NULL|IS NULL|SEMI JOIN|ANTI JOIN|\b(?:AND|OR|NOT)\b"
    r"|!=|<=|>=|(?<![<>!=])[<>](?![<>=])"
    r"|(?<![<>!=])=(?!=)|\b(?:true|false)\b|\b(?:greatest|least|count_if)\("
)
_FLIPS: Final = {
    "IS NOT DISTINCT FROM": (("IS DISTINCT FROM", "comparison"),),
    "IS DISTINCT FROM": (("IS NOT DISTINCT FROM", "comparison"),),
    "IS NOT NULL": (("IS NULL", "comparison"),),
    "IS NULL": (("IS NOT NULL", "comparison"),),
    "SEMI JOIN": (("ANTI JOIN", "boolean"),),
    "ANTI JOIN": (("SEMI JOIN", "boolean"),),
    "AND": (("OR", "boolean"),),
    "OR": (("AND", "boolean"),),
    "NOT": (("", "boolean"),),
    "true": (("false", "boolean"),),
    "false": (("true", "boolean"),),
    "=": (("!=", "comparison"),),
    "!=": (("=", "comparison"),),
    "<": ((">", "comparison"), ("<=", "boundary")),
    "<=": ((">=", "comparison"), ("<", "boundary")),
    ">": (("<", "comparison"), (">=", "boundary")),
    ">=": (("<=", "comparison"), (">", "boundary")),
    "greatest(": (("least(", "comparison"),),
    "least(": (("greatest(", "comparison"),),
}
_TERM_ENDS: Final = re.compile(
    r"\s+(?:AND|OR|THEN|ELSE|END|WHEN|GROUP|HAVING|UNION|(?<!DISTINCT )FROM|JOIN|AS|LEFT|SEMI|ANTI)\b|\s*\n|[\"'][,)\n]"
)


def sql_flips(source: str) -> Iterator[Flip]:
    """Every flip in the SQL of ``source``, a module that leaves the module valid."""
    for start, end in _sql_strings(source):
        for token in _TOKEN.finditer(source, start, end):
            if _is_python(source, start, token.start()):
                continue
            for text, kind in _FLIPS.get(token[0], ()):
                stop = token.end() + (not text and source[token.end()] == " ")
                flip = Flip(token.start(), stop, text, kind)
                if is_valid(source, flip):
                    yield flip
            if token[0] in ("AND", "OR"):
                start_of_both = len(source[: token.start()].rstrip())
                flip = Flip(start_of_both, _end_of_term(source, token.end(), end), "", "dropped term")
                if is_valid(source, flip):
                    yield flip


def _sql_strings(source: str) -> Iterator[tuple[int, int]]:
    """Places of the string literals that hold SQL; neighbours that Python joins are one."""
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    tree = ast.parse(source)
    within = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
        if part is not node
    }
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
        if is_text and id(node) not in within and id(node) not in told:
            assert isinstance(node, ast.expr)
            start = lines[node.lineno - 1] + node.col_offset
            end = lines[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            if _SQL.search(source[start:end]):
                yield start, end


def _is_python(source: str, start: int, place: int) -> bool:
    """True between the braces of an f-string."""
    text = source[start:place]
    return text.count("{") > text.count("}")


def _end_of_term(source: str, start: int, end: int) -> int:
    """Where the term that begins at ``start`` ends: at the next keyword, or where its parentheses end."""
    depth = 0
    for place in range(start + 1, end):
        depth += {"(": 1, ")": -1}.get(source[place], 0)
        if depth < 0 or (depth == 0 and _TERM_ENDS.match(source, place)):
            return place
    return end
