"""The size and the shape of the code, counted: `make layout` prints them, and a test holds the shape.

    python -m tests.nets.layout

The product is what lies below PRODUCT. A *box* is a folder or a module directly below the package, or one of the other
top-level folders. A *floor* is a step of the longest chain of imports between boxes, those for types included. A
*circle* is a set of boxes that import each other.

What stands against the floors (`against.txt`; `tests.nets.floors` says who may import whom) is counted by itself, and
no part of floors and circles.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = {"pipeline": "firnlake", "expectations": "firnlake_expectations"}
"""Folder: its package; imports name the package."""
PACKAGE = "firnlake"
PRODUCT = (*SOURCE_ROOTS, "dags")
LONG = 600
"""Lines of the longest module that can be read in one go."""

AGAINST = Path(__file__).with_name("against.txt")
"""What stands against the floors: a line for each module and one that it imports."""

Import = tuple[str, str]
"""A module, and one that it imports."""
Imports = dict[str, set[str]]
"""Box: the boxes that it imports."""


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

    @property
    def lines_with_text(self) -> int:
        """The lines that are not blank."""
        return sum(bool(line.strip()) for line in self.text.splitlines())

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of its syntax tree."""
        return list(ast.walk(ast.parse(self.text)))

    @property
    def functions(self) -> int:
        """Functions and methods."""
        return sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in self.nodes)

    @property
    def classes(self) -> int:
        """Classes."""
        return sum(isinstance(node, ast.ClassDef) for node in self.nodes)

    @property
    def docstrings(self) -> int:
        """How many of the module, its classes and its functions have one."""
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        return sum(isinstance(node, kinds) and ast.get_docstring(node) is not None for node in self.nodes)

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


def _lines_of_cases() -> int:
    return sum(path.read_text(encoding="utf-8").count("\n") for path in (ROOT / "tests").rglob("*.case"))


def measured() -> dict[str, float]:
    """Every figure by its name."""
    product, infra = modules(*PRODUCT), modules("infra")
    listed = against_the_floors()
    imports = imports_of([*product, *infra], listed)
    documentable = len(product) + sum(module.classes + module.functions for module in product)
    return {
        "folders in the package": sum(
            1 for path in (ROOT / "pipeline" / PACKAGE).iterdir() if (path / "__init__.py").exists()
        ),
        "boxes": len(imports),
        "floors": floors(imports),
        "circles": len(circles(imports)),
        "imports against the floors": len(listed),
        "product lines": sum(module.lines for module in product),
        "product lines that are not blank": sum(module.lines_with_text for module in product),
        "files": len(product),
        "classes": sum(module.classes for module in product),
        "functions": sum(module.functions for module in product),
        "docstrings, %": round(100 * sum(module.docstrings for module in product) / documentable, 1),
        "infra lines": sum(module.lines for module in infra),
        "test lines": sum(module.lines for module in modules("tests")) + _lines_of_cases(),
        f"modules above {LONG} lines": sum(module.lines > LONG for module in [*product, *infra]),
        "modules that commit": sum(module.commits for module in product),
        "modules that delete": sum(module.deletes for module in product),
    }


def against_the_floors() -> set[Import]:
    """The imports that `against.txt` lists."""
    rows = (line.split(" -> ") for line in AGAINST.read_text(encoding="utf-8").splitlines())
    return {(importing, imported) for importing, imported in rows}


def imports_of(code: Iterable[Module], listed: Collection[Import] = ()) -> Imports:
    """Which box imports which, but for the imports that are ``listed``."""
    code = list(code)
    boxes = {box for module in code if (box := box_of(module.name))}
    imports: Imports = {box: set() for box in boxes}
    for importing, imported in imported_modules(code):
        box = box_of(importing)
        if box and (".".join(importing), ".".join(imported)) not in listed:
            imports[box] |= {box_of(imported)} & boxes - {box}
    return imports


def imported_modules(code: Sequence[Module]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Each module and what it imports, by dotted names split at the dots; a name of a module counts as that module."""
    names = {module.name for module in code}
    for module in code:
        for imported in module.imported:
            yield module.name, imported[:-1] if imported not in names and imported[:-1] in names else imported


def circles(imports: Mapping[str, set[str]]) -> list[set[str]]:
    """The sets of boxes that import each other, directly or not."""
    reached = {box: _reached(box, imports) for box in imports}
    together = {frozenset({other for other in reached[box] if box in reached[other]}) for box in imports}
    return [set(boxes) for boxes in together if boxes]


def floors(imports: Mapping[str, set[str]]) -> int:
    """The number of boxes on the longest chain of imports; boxes of a circle count as one."""
    home = {box: frozenset({box}) for box in imports}
    for circle in circles(imports):
        home |= dict.fromkeys(circle, frozenset(circle))
    below = {one: {home[box] for member in one for box in imports[member]} - {one} for one in home.values()}
    heights: dict[frozenset[str], int] = {}

    def height(one: frozenset[str]) -> int:
        if one not in heights:
            heights[one] = 1 + max(map(height, below[one]), default=0)
        return heights[one]

    return max(map(height, below), default=0)


def _reached(box: str, imports: Mapping[str, set[str]]) -> set[str]:
    """The boxes that a box imports, directly or not; itself only by way of a circle."""
    reached: set[str] = set()
    waiting = [*imports[box]]
    while waiting:
        if (other := waiting.pop()) not in reached:
            reached.add(other)
            waiting.extend(imports[other])
    return reached


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
