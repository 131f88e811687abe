"""``python -m tests.nets.draw``: draw the flips anew from a seed, for a list that does not exist yet.

Which flips there are depends on the code as it is, so a list is drawn once. After that it moves with the code by hand,
and a flip keeps its number.
"""

import json
import random
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from tests.nets.mistakes import MUTANTS, ROOT, Mistake
from tests.nets.python_flips import Flip, flipped, python_flips
from tests.nets.rules import RULES, SHARES
from tests.nets.sql_flips import sql_flips

HEAD = """# Flips of the rules, drawn by `python -m tests.nets.draw`. `killed_by` is a test that turns red with it.
# A flip without it lives, and `lives` says why where somebody has looked. The list moves with the code: what deletes or
# rewrites a text makes the same mistake in its successor, under the same number.
"""


def main(seed: Annotated[int, typer.Option(help="Draws the same flips of the same code.")] = 34) -> None:
    """Draw and list them."""
    if MUTANTS.exists():
        raise typer.BadParameter(
            f"{MUTANTS.relative_to(ROOT)} is there: flips move with the code, they are not drawn again"
        )
    write(drawn(seed))


def write(mistakes: Iterable[Mistake]) -> None:
    """Write the list anew."""
    MUTANTS.write_text(HEAD + "".join(entry(mistake) for mistake in mistakes))


def drawn(seed: int) -> list[Mistake]:
    """The flips of ``seed``, numbered, each once; sorted by their places."""
    numbers = random.Random(seed)  # noqa: S311  # repeatable, not secret
    chosen = []
    for what, modules in RULES.items():
        every = [(module, flip) for module in modules for flip in sorted(set(_flips(module)))]
        chosen += sorted(numbers.sample(every, SHARES[what]))
    return [_mistake(number, module, flip) for number, (module, flip) in enumerate(chosen, 1)]


def entry(mistake: Mistake) -> str:
    """A flip in the list."""
    texts = {"module": mistake.module, "kind": mistake.title, "now": mistake.now, "then": mistake.then}
    lines = [f"number = {mistake.number}", *(f"{name} = {_text(text)}" for name, text in texts.items())]
    lines += [f"killed_by = {_text(test)}" for test in mistake.tests]
    lines += [f"lives = {_text(mistake.lives)}"] if mistake.lives else []
    return "\n[[mutant]]\n" + "\n".join(lines) + "\n"


def _flips(module: str) -> Iterator[Flip]:
    source = (ROOT / module).read_text()
    yield from python_flips(source)
    if module.startswith("expectations"):
        yield from sql_flips(source)


def _mistake(number: int, module: str, flip: Flip) -> Mistake:
    """The flip as whole lines, as many as are in the module once."""
    source = (ROOT / module).read_text()
    start, end = source.rfind("\n", 0, flip.start) + 1, source.index("\n", flip.end - 1) + 1
    while source.count(source[start:end]) > 1:
        start = source.rfind("\n", 0, start - 1) + 1
    after = flipped(source, flip)
    return Mistake(number, module, flip.kind, source[start:end], after[start : end + len(after) - len(source)])


def _text(text: str) -> str:
    """``text`` in TOML, legible where it has several lines."""
    if "\n" in text and "'''" not in text:
        return f"'''\n{text}'''"
    return json.dumps(text, ensure_ascii=False)


if __name__ == "__main__":
    typer.run(main)
