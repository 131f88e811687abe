"""Mistakes that the suite has to notice: flips of the rules, and defects of this project's history that are put back.

Each is a text of a module as it is now, and as the mistake has it. The files that list them move with the code: a
module that is renamed, or a text that is written anew, is written anew there under the same number.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
MUTANTS: Final = ROOT / "tests/nets/mutants.toml"
DEFECTS: Final = ROOT / "tests/nets/defects.toml"


@dataclass(frozen=True)
class Mistake:
    """One mistake in ``module`` (a path in the checkout): ``then`` in place of ``now``, which is there once."""

    number: int
    module: str
    title: str
    now: str
    then: str
    tests: tuple[str, ...] = ()
    """Functions of tests that turn red, as ``path::name``; run first."""
    lives: str = ""
    """Of a flip that no test notices: why that is no matter, or what is missing."""

    def made_in(self, source: str) -> str:
        """``source`` of the module with the mistake. Raises ValueError unless it has the text ``now`` exactly once."""
        if (times := source.count(self.now)) != 1:
            raise ValueError(f"{self}: its text is in {self.module} {times} times; allowed: once")
        return source.replace(self.now, self.then)

    def __str__(self) -> str:
        """Number, module and title."""
        return f"{self.number} ({self.module}: {self.title})"


def mutants() -> list[Mistake]:
    """The flips; ``tests`` is the one that notices a flip, none for one that lives."""
    return [
        Mistake(
            row["number"],
            row["module"],
            row["kind"],
            row["now"],
            row["then"],
            (row["killed_by"],) if "killed_by" in row else (),
            row.get("lives", ""),
        )
        for row in _rows(MUTANTS, "mutant")
    ]


def defects() -> list[Mistake]:
    """The defects of this project's history, each with the tests that its mend brought or that found it since."""
    return [
        Mistake(row["number"], row["module"], row["wrong"], row["now"], row["then"], tuple(row["tests"]))
        for row in _rows(DEFECTS, "defect")
    ]


def chosen(mistakes: list[Mistake], numbers: str) -> list[Mistake]:
    """Those with ``numbers``, such as ``1-200`` or ``3,17``; all for an empty text."""
    wanted = {number for part in numbers.split(",") if part for number in _range(part)}
    return [one for one in mistakes if not numbers or one.number in wanted]


def _range(part: str) -> range:
    first, _, last = part.partition("-")
    return range(int(first), int(last or first) + 1)


def _rows(path: Path, name: str) -> Iterator[dict[str, Any]]:
    yield from tomllib.loads(path.read_text())[name]
