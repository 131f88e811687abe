"""Which tests hold each promise of docs/contract.md: its last column is made of this.

    python -m tests.nets.promises    # write the column anew

A case of `tests/contract/c09.case` holds C9, and one of a file with another name what its first line names. So does
a test function with ``c9`` in its name, or one without a number whose class or module names C9. The column names the
files, with the number of cases or functions in each.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.cases import cases

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs/contract.md"
_ROW: Final = re.compile(r"^\| (?P<rules>C\d+(?:, C\d+)*) \| (?P<promise>.*?) \|(?: [^|]*\|)?$")


def page(text: str) -> str:
    """The contract with a last column that says what the tests are now. Raises ValueError for a promise without one."""
    held = _held()
    return "\n".join(_row(match, held) if (match := _ROW.match(line)) else line for line in text.split("\n"))


def _row(row: re.Match[str], held: Mapping[str, Counter[str]]) -> str:
    found = sum((held[rule] for rule in row["rules"].split(", ")), Counter[str]())
    if not found:
        raise ValueError(f"docs/contract.md: no test holds {row['rules']}")
    return f"| {row['rules']} | {row['promise']} | {', '.join(_named(found))} |"


def _named(found: Counter[str]) -> Iterator[str]:
    """The files with their numbers, the folder of several once."""
    folder = ""
    for path in sorted(found):
        parent, _, name = path.rpartition("/")
        yield f"`{name if parent == folder else path}` ({found[path]})"
        folder = parent


def _held() -> dict[str, Counter[str]]:
    """By rule, the number of cases or functions in each file."""
    held: dict[str, Counter[str]] = defaultdict(Counter)
    for case in cases(ROOT / "tests/contract"):
        for rule in _of_cases(case.path):
            held[rule][str(case.path.relative_to(ROOT))] += 1
    for case in cases(ROOT / "tests/refusals"):
        held["C26"][str(case.path.relative_to(ROOT))] += 1
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        module = ast.parse(path.read_text())
        for rules in _of(module, _said(module)):
            for rule in rules:
                held[rule][str(path.relative_to(ROOT))] += 1
    return held


def _of_cases(path: Path) -> set[str]:
    """The promise by which a file of cases is named, or else those that its first line names."""
    number = re.fullmatch(r"c(\d\d)(_\w+)?", path.stem)
    return {f"C{int(number[1])}"} if number else _rules(path.read_text().partition("\n")[0])


def _of(scope: ast.Module | ast.ClassDef, above: set[str]) -> Iterator[set[str]]:
    """The promises of each test in ``scope``: those in its name, or else those of the class or of the module."""
    for node in scope.body:
        if isinstance(node, ast.ClassDef):
            yield from _of(node, _said(node) or above)
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield _rules(node.name.upper().replace("_", " ")) or above


def _said(scope: ast.Module | ast.ClassDef) -> set[str]:
    return _rules(ast.get_docstring(scope) or "")


def _rules(text: str) -> set[str]:
    """The promises that ``text`` names: ``C2 to C5`` are four."""
    rules = set(re.findall(r"\bC[1-9][0-9]?\b", text))
    for first, last in re.findall(r"\bC([1-9][0-9]?) (?:to|TO) C([1-9][0-9]?)\b", text):
        rules |= {f"C{number}" for number in range(int(first), int(last) + 1)}
    return rules


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
