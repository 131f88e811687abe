"""Temporary files may hold keys: the next process removes those of a killed one, and leaves those of a living one."""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
import pytest

from firnlake.compact import survey
from firnlake.engine.engine import LocalEngine
from firnlake.validate import validate
from firnlake_expectations.case import BEFORE, Case, Part
from tests.support import judged
from tests.support.plans import Held, Row, plan_inputs
from tests.support.records import Record

if TYPE_CHECKING:
    from firnlake.validate.cases import JudgedRecords

FORK = get_context("fork")  # begins at once, with all modules of this process
PATCH = pytest.MonkeyPatch()  # for forks, which undo nothing
Waits = Callable[..., object]
"""Says that temporary files are written, and waits until its process is killed."""
Work = Callable[[Path, Waits], None]


def keys(folder: Path) -> None:
    survey.on_disk(plan_inputs(folder, [Held(0, [Row(0, b"key")])]))


def keys_that_spill(folder: Path, waits: Waits) -> None:
    def many_keys(*_: object) -> Iterator[tuple[pa.RecordBatch, None]]:
        for start in range(0, 400_000, 10_000):
            places = np.arange(start, start + 10_000)
            columns = [[b"%032d" % place for place in places], places, places, [False] * len(places)]
            yield (
                pa.RecordBatch.from_arrays([pa.array(own) for own in columns], names=survey.KEYS.names).cast(
                    survey.KEYS
                ),
                None,
            )

    def first_row(newest: Callable[..., Iterator[pa.RecordBatch]], *arguments: object) -> Iterator[pa.RecordBatch]:
        for rows in newest(*arguments):
            waits()
            yield rows

    PATCH.setattr(survey, "MEMORY_BYTES", 24 << 20)
    PATCH.setattr(survey, "keys_of_segment", many_keys)
    judged.replaced(PATCH, survey, "_newest", first_row)
    keys(folder)


def judge(_: Path, times: int = 1, then: Waits = bool) -> None:
    def read(columns: Sequence[str] | None) -> Iterator[pa.Table]:
        records = (judged.Held(Record(one, b"%04000d" % one, b"v")) for one in range(1000))
        yield from [judged.table(records).select(columns)] * times
        then()

    held = SimpleNamespace(schema=judged.SCHEMA, reading=judged.KAFKAS)
    case = Case(judged.CLAIM, (Part(BEFORE, read),))
    found, errors = validate.verdicts_of(cast("JudgedRecords", held), [case], "none", LocalEngine(1), "")
    assert (len(found), errors) == (1, {})


def judge_that_spills(folder: Path, waits: Waits) -> None:
    PATCH.setattr("firnlake_expectations.judge.MEMORY_BYTES", 32 << 20)
    judge(folder, 30, waits)


@contextmanager
def waiting(work: Work, folder: Path) -> Iterator[BaseProcess]:
    """A process that has come to ``waits``."""
    here, there = FORK.Pipe()

    def waits(*_: object) -> None:
        here.close()
        there.send("ready")
        there.poll(None)  # until the other end is gone
        os._exit(0)

    process = FORK.Process(target=work, args=(folder, waits))
    process.start()
    there.close()
    with here:
        assert here.recv() == "ready"
        yield process
    process.join()


@pytest.mark.parametrize(
    ("work", "next_work"),
    [(keys_that_spill, judge), (judge_that_spills, keys)],
)
def test_d4_the_next_process_removes_what_a_killed_one_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Work, next_work: Callable[[Path], None]
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with waiting(work, tmp_path) as process:
        (folder,) = temporary.iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
        held = sorted(folder.iterdir())
        assert held
        next_work(tmp_path)
        assert sorted(folder.iterdir()) == held, "its process lives"
        process.kill()
        process.join()
        assert sorted(folder.iterdir()) == held
        next_work(tmp_path)
        assert list(temporary.iterdir()) == []
