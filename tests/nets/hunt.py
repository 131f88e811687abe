"""The hunt for the test that notices a mistake: two at a time, each in a copy of the checkout of its own."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.nets.mistakes import ROOT, Mistake
from tests.nets.prepared_pytest import prepare, run
from tests.nets.reached import Reaching, measure, nearest, parts, state_of_code
from tests.nets.tree import Tree

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue

PROCESSES: Final = 2
CACHE: Final = ROOT / ".cache/mutants"
"""Where everything that was found is kept by default."""
FIRST_SECONDS: Final = 12.0
"""Time that the tests of the first run take when nothing is wrong: collecting the files of many costs seconds."""
SOUND_SECONDS: Final = 1800.0
TESTED: Final = ("tests/unit", "tests/contract", "tests/judge", "tests/faults")
"""Folders of the tests that notice mistakes."""
_MEMORY: Final = Path("/dev/shm")  # a file system in memory, where Linux has one

_tree: Tree


@dataclass(frozen=True)
class Noticed:
    """What became of a mistake: the test that turned red, None where all stayed green or the time was over."""

    number: int
    red: str | None
    tests: int
    """Number of functions of tests that it was held against."""
    seconds: float
    in_time: bool


class Hunters:
    """Processes that find Firn's dear packages imported, and a tree each. They keep what they find in ``cache``."""

    def __init__(self, pool: ProcessPoolExecutor, cache: Path, seconds: float) -> None:
        self._pool, self._cache, self._seconds = pool, cache, seconds
        self._state = state_of_code(*TESTED)

    def check_sound(self, mistakes: Iterable[Mistake]) -> None:
        """Raise RuntimeError unless the tests of all ``mistakes`` are there and green without them."""
        tests = sorted({test for mistake in mistakes for test in mistake.tests})
        marker = self._stored("sound", *tests)
        if tests and not marker.exists():
            for red in self._pool.map(_red_without_mistake, [part for part in (tests[::2], tests[1::2]) if part]):
                if red:
                    raise RuntimeError(f"without a mistake: {red}")
            marker.touch()

    def known(self, mistakes: Sequence[Mistake]) -> Iterator[Noticed]:
        """Hold each mistake against its own tests."""
        batches = {one.number: [list(one.tests)] for one in mistakes if one.tests}
        return self._hunt([one for one in mistakes if one.tests], batches, "known")

    def reached(self, mistakes: Sequence[Mistake], among: str = "") -> Iterator[Noticed]:
        """Hold each mistake against the tests that reach it, which are measured before unless they were.

        ``among`` are folders and files of tests, all by default.
        """
        if not mistakes:
            return iter(())
        tests = self._measured([part for part in parts() if not among or part in among.split(",")])
        batches = {one.number: _batches(nearest(one, tests)) for one in mistakes}
        return self._hunt(mistakes, batches, "reached")

    def _measured(self, wanted: Sequence[str]) -> list[Reaching]:
        folder = self._cache / "reached"
        folder.mkdir(parents=True, exist_ok=True)
        measured: list[Reaching] = []
        for part, tests in zip(wanted, self._pool.map(_measure, [(part, folder) for part in wanted]), strict=True):
            print(f"measured {part}: {len(tests)} functions of tests", flush=True)
            measured += tests
        return measured

    def _hunt(self, mistakes: Sequence[Mistake], batches: Mapping[int, list[list[str]]], how: str) -> Iterator[Noticed]:
        files = {one.number: self._stored(how, one.module, one.now, one.then, *one.tests) for one in mistakes}
        left = []
        for mistake in mistakes:
            noticed = _read(files[mistake.number], mistake)
            if noticed and (noticed.red or noticed.in_time or noticed.seconds >= self._seconds):
                yield noticed
            else:
                left.append((mistake, batches[mistake.number], self._seconds))
        for running in as_completed([self._pool.submit(_noticed, one) for one in left]):
            noticed = running.result()
            files[noticed.number].write_text(json.dumps(asdict(noticed)))
            yield noticed

    def _stored(self, how: str, *texts: str) -> Path:
        folder = self._cache / self._state
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{how}-{hashlib.sha256(chr(0).join(texts).encode()).hexdigest()[:16]}.json"


@contextmanager
def hunters(cache: Path, seconds: float) -> Iterator[Hunters]:
    """Start the processes; ``cache`` keeps what they find, so that an interrupted hunt goes on."""
    prepare()
    folder = Path(tempfile.mkdtemp(prefix="firn-nets-", dir=_MEMORY if _MEMORY.is_dir() else None))
    context = get_context("fork")
    trees: SimpleQueue[Tree] = context.SimpleQueue()
    try:
        for number in range(PROCESSES):
            trees.put(Tree.copied(folder / str(number)))
        pool = ProcessPoolExecutor(PROCESSES, context, _take_tree, (trees,))
        try:
            yield Hunters(pool, cache, seconds)
        finally:
            pool.shutdown(cancel_futures=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _take_tree(trees: "SimpleQueue[Tree]") -> None:
    global _tree  # one per process
    _tree = trees.get()


def _red_without_mistake(tests: Sequence[str]) -> str | None:
    ended = run(_tree, tests, SOUND_SECONDS)
    return f"{ended.red} fails (pytest ended with {ended.code})" if ended.code != 0 else None


def _measure(task: tuple[str, Path]) -> list[Reaching]:
    return measure(_tree, *task)


def _noticed(task: tuple[Mistake, Sequence[Sequence[str]], float]) -> Noticed:
    mistake, batches, seconds = task
    left, tests = seconds, 0
    with _tree.with_mistake(mistake):
        for batch in batches:
            ended = run(_tree, batch, left)
            left -= ended.seconds
            tests += len(batch)
            if ended.is_red:
                return Noticed(
                    mistake.number, ended.red or "nothing can be collected", tests, seconds - left, in_time=True
                )
            if ended.code is None:
                return Noticed(mistake.number, None, tests, seconds - left, in_time=False)
    return Noticed(mistake.number, None, tests, seconds - left, in_time=True)


def _read(file: Path, mistake: Mistake) -> Noticed | None:
    """What an earlier run has found out."""
    return Noticed(**json.loads(file.read_text()) | {"number": mistake.number}) if file.exists() else None


def _batches(reaching: Sequence[Reaching]) -> list[list[str]]:
    """The tests to run, in two runs where they take long."""
    first: list[str] = []
    others: list[str] = []
    seconds = 0.0
    for test in reaching:
        seconds += test.seconds
        (first if seconds <= FIRST_SECONDS else others).append(test.name)
    return [batch for batch in (first, others) if batch]
