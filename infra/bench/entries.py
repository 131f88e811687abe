"""Entries of a benchmark: an entry takes a shape's inputs and leaves files; only the time between counts.

Set-up (a copy of the table's metadata, properties) and the check of the output lie outside of it.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from infra.bench.check import Fingerprint
from infra.bench.inputs import Inputs
from infra.bench.resources import Peak, Share, processor_seconds, watched
from pipeline.engine import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Task(StrEnum):
    """The task of an entry; only entries of one task can be compared."""

    FULL = "full"
    """Head and tail become the new tail: one record per key."""
    CLEAN = "clean"
    """Merged segments of the head become a run: one record per key of the head."""
    MERGE = "merge"
    """Landed segments become larger ones; nothing is lost."""


@dataclass(frozen=True)
class Bench:
    """Shared by all entries: Spark with Iceberg for the peers, Firn's engines by name, a folder for what they write.

    ``cores`` is how many each may use.
    """

    spark: "SparkSession"
    engines: Mapping[str, Engine]
    cores: int
    scratch: Path


@dataclass
class Measured:
    """One run: wall seconds, those of its parts by name, its memory, and the files it left, to be checked.

    ``processor`` are seconds of all threads of this process, of Spark's JVM and of what they started.
    """

    seconds: float = 0.0
    processor: float = 0.0
    rooms: dict[str, float] = field(default_factory=dict)
    peak: Peak = field(default_factory=Peak)
    files: list[Path] = field(default_factory=list)

    @contextmanager
    def timed(self, share: Share) -> Iterator[None]:
        """Add the wall and processor seconds of the block; its memory is that of the processes that ``share`` names."""
        with watched(share) as self.peak:
            started, used = time.monotonic(), processor_seconds()
            try:
                yield
            finally:
                self.seconds += time.monotonic() - started
                self.processor += processor_seconds() - used


@dataclass(frozen=True)
class Entry:
    """One competitor. ``run`` gives a measured run and keeps its output until the context is left.

    ``keeps_everything``: a copy by design, held against all records of the task's input, not the newest per key.
    """

    name: str
    title: str
    task: Task
    run: Callable[[Bench, Inputs], AbstractContextManager[Measured]]
    keeps_everything: bool = False
    cores: int | None = None
    """Number of cores that it can use; None: all of the benchmark's."""
    warms_itself: bool = False
    """It starts a process for every run: nothing here has to be warm for it."""

    def expected(self, inputs: Inputs) -> Fingerprint:
        """The records that a run has to leave."""
        if self.task is Task.FULL:
            return inputs.everything if self.keeps_everything else inputs.newest
        return inputs.head if self.keeps_everything else inputs.head_newest


def sources(task: Task, inputs: Inputs) -> list[Path]:
    """The files that an entry of ``task`` reads."""
    if task is Task.FULL:
        return list(inputs.whole.files)
    return inputs.merged_files if task is Task.CLEAN else inputs.head_files
