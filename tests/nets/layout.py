"""The size and the shape of the code, counted: `make layout` prints them, and a test holds the shape.

    python -m tests.nets.layout

The product is what lies below PRODUCT. A *box* is a folder or a module directly below the package, or one of the other
top-level folders. It imports boxes of lower floors, and nothing else.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = {"pipeline": "firnlake", "expectations": "firnlake_expectations"}
"""Folder: its package; imports name the package."""
PACKAGE = "firnlake"
PRODUCT = (*SOURCE_ROOTS, "dags")
LONG = 600
"""Lines of the longest module that can be read in one go."""
FLOORS = (
    {"progress", "firnlake_expectations"},
    {"errors"},
    {"iceberg", "engine", "clock"},
    {"table"},
    {"lanes"},
    {"job"},
    {"plan", "compact", "validate", "publish", "maintain", "ingest"},
    {"inspect", "run"},
    {"airflow", "cli", "door"},
    {"dags", "infra", "__main__"},
)
"""The boxes, floor by floor, from the ground. Boxes of one floor do not import each other, and none in circles."""

Import = tuple[str, str]
"""A module, and one that it imports."""


@dataclass(frozen=True)
class Module:
    """A Python file of the checkout."""

    path: Path
    text: str

    @property
    def name(self) -> tuple[str, ...]:
        """Its dotted name, split at the dots."""
        parts = self.path.with_suffix("").parts
        return parts[1:] if parts[0] in SOURCE_ROOTS else parts

    @property
    def lines(self) -> int:
        """All lines, as `wc -l` counts them."""
        return self.text.count("\n")

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of its syntax tree."""
        return list(ast.walk(ast.parse(self.text)))

    @property
    def imported(self) -> Iterator[tuple[str, ...]]:
        """The dotted names that it imports, split at the dots; what is imported from a module is one part more."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield tuple(alias.name.split("."))
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    yield (*node.module.split("."), alias.name)

    @property
    def commits(self) -> bool:
        """It asks a catalog to commit."""
        return any(_called(node)[-1:] == ("commit_table",) for node in self.nodes)

    @property
    def deletes(self) -> bool:
        """It deletes a file of a table: through Iceberg's FileIO, or through Arrow's file system."""
        calls = {_called(node)[-2:] for node in self.nodes}
        return ("io", "delete") in calls or any(call[-1:] == ("delete_file",) and len(call) > 1 for call in calls)


def modules(*folders: str) -> list[Module]:
    """The Python files below these folders of the checkout, by path."""
    paths = sorted(chain.from_iterable((ROOT / folder).rglob("*.py") for folder in folders))
    return [Module(path.relative_to(ROOT), path.read_text(encoding="utf-8")) for path in paths]


def measured() -> dict[str, int]:
    """Every figure by its name."""
    product, infra, tests = modules(*PRODUCT), modules("infra"), modules("tests")
    cases = [path.read_text(encoding="utf-8").count("\n") for path in (ROOT / "tests").rglob("*.case")]
    return {
        "product lines": sum(module.lines for module in product),
        "product files": len(product),
        "infra lines": sum(module.lines for module in infra),
        "test lines": sum(module.lines for module in tests) + sum(cases),
        "test files": len(tests) + len(cases),
        "imports against the floors": len(against([*product, *infra])),
        f"modules above {LONG} lines": sum(module.lines > LONG for module in [*product, *infra]),
        "modules that commit": sum(module.commits for module in product),
        "modules that delete": sum(module.deletes for module in product),
    }


def against(code: Sequence[Module]) -> set[Import]:
    """The imports of what does not stand on a lower floor."""
    height = {box: floor for floor, boxes in enumerate(FLOORS) for box in boxes}
    found = set()
    for importing, imported in _imports(code):
        box, other = box_of(importing), box_of(imported)
        if box and other in height and other != box and height[other] >= height[box]:
            found.add((".".join(importing), ".".join(imported)))
    return found


def _imports(code: Sequence[Module]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Each module and what it imports, by dotted names split at the dots; a name of a module counts as that module."""
    names = {module.name for module in code}
    for module in code:
        for imported in module.imported:
            yield module.name, imported[:-1] if imported not in names and imported[:-1] in names else imported


def box_of(name: tuple[str, ...]) -> str:
    """The box that a module, or a name in it, belongs to; empty: none, as the package's own `__init__` does."""
    if name[0] != PACKAGE:
        return name[0]
    return name[1] if len(name) > 1 and name[1] != "__init__" else ""


def _called(node: ast.AST) -> tuple[str, ...]:
    """The dotted name of the function that a node calls, split at the dots, as far as it is one; else nothing."""
    names: list[str] = []
    function: ast.AST | None = node.func if isinstance(node, ast.Call) else None
    while isinstance(function, ast.Attribute):
        names.append(function.attr)
        function = function.value
    if isinstance(function, ast.Name):
        names.append(function.id)
    return tuple(reversed(names))


if __name__ == "__main__":
    for figure, value in measured().items():
        print(f"{figure:<34}{value:>9,}")
