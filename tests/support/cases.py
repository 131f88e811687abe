"""Files of cases (`*.case`): what is done to a table, and what there is to see, one under the other.

    == the first cleaning never removes a tombstone
    create delete.retention.ms=0
    land a=1 a= b=1
    full
      1 to 1 segments, 3 to 2 records; superseded 1

A line at the margin is a command, of `tests.support.scenario` or, in tests/rules, of `tests.support.looking`; what it
answers stands beneath, indented by two blanks. A command without such lines answers nothing. A line with ``#`` is a
comment. The file's name is the promise. A title that ends with ``(nightly)`` is that of a case which repeats a rule at
length: `make test` leaves it out (tests/conftest.py).

Lines that begin with ``> `` are the text of the command above them, for example the content of a file.

`pytest --rewrite` writes what the commands answer into the files: read the difference as you read code.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

TITLE = "== "
_MARGIN = "  "
_TEXT = ">"


class Answering(Protocol):
    """Answers the commands of a case, one after the other."""

    def answer(self, line: str, text: Sequence[str]) -> list[str]:
        """The lines that the command ``line`` has to say; ``text`` stands beneath it."""
        ...


@dataclass(frozen=True)
class Case:
    """A case in ``path``; ``lines`` are its text without the title, from line ``first``."""

    path: Path
    title: str
    first: int
    lines: tuple[str, ...]

    def __str__(self) -> str:
        """The promise and the title."""
        return f"{self.path.stem} {self.title}"

    def played(self, scenario: Answering) -> tuple[str, ...]:
        """The lines as they should be: each command with what ``scenario`` answers."""
        told: list[str] = []
        for number, line, text in self._commands():
            told += [line, *text]
            if line and not line.startswith("#"):
                try:
                    said = scenario.answer(line, [one[2:] for one in text])
                except Exception as error:
                    error.add_note(f"{self.path.name}:{number}: {line}")
                    raise
                told += [(_MARGIN + one).rstrip() for one in said]
        return tuple(told)

    def _commands(self) -> Iterator[tuple[int, str, list[str]]]:
        """Each line that is no answer, with its number and its text."""
        lines = [(number, line) for number, line in enumerate(self.lines, self.first) if not line.startswith(_MARGIN)]
        for place, (number, line) in enumerate(lines):
            if not line.startswith(_TEXT):
                text = itertools.takewhile(lambda one: one.startswith(_TEXT), (one for _, one in lines[place + 1 :]))
                yield number, line, list(text)


def cases(folder: Path) -> list[Case]:
    """All cases in ``folder``, in the order of files and lines."""
    return [case for path in sorted(folder.glob("*.case")) for case in _of(path)]


def check(case: Case, scenario: Answering, *, rewriting: bool) -> None:
    """Play ``case``: what it answers has to be what stands in the file, or is written there."""
    lines = case.played(scenario)
    if lines != case.lines and rewriting:
        rewrite(case, lines)
    else:
        assert lines == case.lines, f"{case.path.name}:{case.first}"


def rewrite(case: Case, lines: tuple[str, ...]) -> None:
    """Put ``lines`` into the file in the case's place."""
    content = case.path.read_text()
    before = "\n".join([TITLE + case.title, *case.lines])
    if content.count(before) != 1:
        raise ValueError(f"{case.path}: case {case.title!r} is there {content.count(before)} times; allowed: once")
    case.path.write_text(content.replace(before, "\n".join([TITLE + case.title, *lines])))


def _of(path: Path) -> Iterator[Case]:
    title, first, lines = "", 0, list[str]()
    for number, line in enumerate([*path.read_text().splitlines(), TITLE], 1):
        if line.startswith(TITLE):
            if title:
                yield Case(path, title, first, tuple(lines))
            title, first, lines = line.removeprefix(TITLE), number + 1, []
        else:
            lines.append(line)
