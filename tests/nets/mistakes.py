"""Mistakes that the suite has to notice: flips of the rules, and defects of this project's history that are put back.

    python -m tests.nets.mistakes mutants --numbers 1-10
    python -m tests.nets.mistakes defects

Each is a text of a module as it is now, and as the mistake has it; `mutants.toml` and `defects.toml` list them with the
tests that turn red. The lists move with the code: a text that is written anew makes the same mistake in its successor,
under the same number. Exit code 1 when a mistake is not noticed by its tests.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from queue import SimpleQueue
from typing import Annotated, Final

import typer

ROOT: Final = Path(__file__).parents[2]
PROCESSES: Final = 2
SECONDS: Final = 180.0
"""Maximum time of the tests of one mistake. Tests that have not ended by then count as red, as in PIT: without the
mistake they end in seconds."""
_NOT_COPIED: Final = (".git", ".venv", ".cache", ".firn", ".hypothesis", "__pycache__")
_MEMORY: Final = Path("/dev/shm")  # a file system in memory, where Linux has one


class Kind(StrEnum):
    """The lists."""

    MUTANTS = "mutants"
    DEFECTS = "defects"


@dataclass(frozen=True)
class Mistake:
    """One mistake in ``module`` (a path in the checkout): ``then`` in place of ``now``, which is there once."""

    number: int
    module: str
    what: str
    now: str
    then: str
    tests: tuple[str, ...]
    """Tests that turn red, as pytest names them; none for a flip that lives."""

    def made_in(self, source: str) -> str:
        """``source`` of the module with the mistake. Raises ValueError unless it has the text ``now`` exactly once."""
        if (times := source.count(self.now)) != 1:
            raise ValueError(f"{self}: its text is in {self.module} {times} times; allowed: once")
        return source.replace(self.now, self.then)

    def __str__(self) -> str:
        """Number, module and what is wrong."""
        return f"{self.number} ({self.module}: {self.what})"


def listed(kind: Kind, numbers: str = "") -> list[Mistake]:
    """The mistakes of a list, all or those with ``numbers``, such as ``1-200`` or ``3,17``."""
    wanted = {number for part in numbers.split(",") if part for number in _range(part)}
    (rows,) = tomllib.loads((ROOT / f"tests/nets/{kind}.toml").read_text()).values()
    return [
        Mistake(row["number"], row["module"], row["what"], row["now"], row["then"], tuple(row.get("tests", ())))
        for row in rows
        if not numbers or row["number"] in wanted
    ]


def main(
    kind: Annotated[Kind, typer.Argument(help="Which list.")],
    numbers: Annotated[str, typer.Option(help="Which of them, such as 1-10 or 3,17; all by default.")] = "",
) -> None:
    """Run the tests of each mistake with it, in copies of the checkout, after they were green without any."""
    mistakes = [one for one in listed(kind, numbers) if one.tests]
    trees: SimpleQueue[Path] = SimpleQueue()
    memory = _MEMORY if _MEMORY.is_dir() else None
    with (
        tempfile.TemporaryDirectory(prefix="firn-mistakes-", dir=memory) as folder,
        ThreadPoolExecutor(PROCESSES) as pool,
    ):
        for number in range(PROCESSES):
            trees.put(shutil.copytree(ROOT, Path(folder, str(number)), ignore=shutil.ignore_patterns(*_NOT_COPIED)))
        sound = trees.get()
        if red := _red(sound, {test for one in mistakes for test in one.tests}, SECONDS * len(mistakes)):
            raise typer.BadParameter(f"without a mistake: {red}")
        trees.put(sound)
        green = [number for number in pool.map(lambda one: _unnoticed(one, trees), mistakes) if number]
    print(f"{len(mistakes) - len(green)} of {len(mistakes)} {kind} are noticed; not noticed: {green or 'none'}")
    raise typer.Exit(bool(green))


def _unnoticed(mistake: Mistake, trees: "SimpleQueue[Path]") -> int | None:
    """The number of ``mistake`` when its tests stay green with it."""
    tree, sound = trees.get(), (ROOT / mistake.module).read_text()
    try:
        (tree / mistake.module).write_text(mistake.made_in(sound))
        red = _red(tree, mistake.tests, SECONDS)
    finally:
        (tree / mistake.module).write_text(sound)
        trees.put(tree)
    print(f"{mistake}: {red or 'NOT NOTICED'}", flush=True)
    return None if red else mistake.number


def _red(tree: Path, tests: Iterable[str], seconds: float) -> str:
    """What pytest says last when one of ``tests`` fails, or that they do not end; nothing when they are green."""
    options = ["-q", "-x", "--hypothesis-seed=0", "--hypothesis-profile=first red", f"--rootdir={tree}"]
    files = tree.with_name(f"{tree.name}-files")
    files.mkdir()
    running = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, *sorted(tests)],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": f"{tree}/pipeline:{tree}/expectations:{tree}", "TMPDIR": str(files)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # with all that the tests start, it is ended as a whole
    )
    try:
        said, _ = running.communicate(timeout=seconds)
        return (said.strip().splitlines() or ["pytest died"])[-1] if running.returncode else ""
    except subprocess.TimeoutExpired:
        return f"not ended after {seconds:.0f} s"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        shutil.rmtree(files, ignore_errors=True)


def _range(part: str) -> range:
    first, _, last = part.partition("-")
    return range(int(first), int(last or first) + 1)


if __name__ == "__main__":
    typer.run(main)
