"""The cases: inputs and the entries that are measured on them. A family varies one thing around the base."""

from dataclasses import dataclass

from infra.bench import engines, firn, kafka, processes, spark
from infra.bench.data import Shape
from infra.bench.entries import Entry, Task

FULL, CLEAN, MERGE = firn.ENTRIES
FULL_LOCAL, CLEAN_LOCAL, MERGE_LOCAL = firn.LOCAL
BASE_RECORDS = 200_000
"""Records of the tail of the base at SCALE=1: 1 KB values, so 200 MB of keys and values."""
CLUSTERED_SEGMENTS = 60
"""With fewer, a single segment would be much of the tail."""
SMALL_FILES = 200
"""Of the job that users of other tools expect to take a few seconds; SMALL_PART of the base's records are 22 MB."""
SMALL_PART = 8
TINY = Shape(100, "uniform", None, 1, 100)
"""A job with nothing to do, for the fixed cost."""


@dataclass(frozen=True)
class Case:
    """One shape, the entries on it and how often each runs after the warm-up. ``family`` groups cases in the report."""

    family: str
    shape: Shape
    entries: tuple[Entry, ...]
    runs: int

    @property
    def name(self) -> str:
        return f"{self.family}: {self.shape.title}, {self.shape.records:,} keys"


def _of(task: Task, *groups: tuple[Entry, ...]) -> tuple[Entry, ...]:
    return tuple(entry for group in groups for entry in group if entry.task is task)


_SPARK_AND_ENGINES = (FULL, FULL_LOCAL, *_of(Task.FULL, spark.ENTRIES, engines.ENTRIES))
_ALL_FULL = (*_SPARK_AND_ENGINES, *kafka.ENTRIES)
_PEERS = (FULL, FULL_LOCAL, *_of(Task.FULL, spark.BIN_PACK, spark.ROW_NUMBER, spark.MERGE_INTO, engines.DUCKDB))
_FEW = (FULL, FULL_LOCAL, *_of(Task.FULL, spark.BIN_PACK, spark.ROW_NUMBER, engines.DUCKDB))
_LARGE = (FULL, FULL_LOCAL, *_of(Task.FULL, spark.BIN_PACK, engines.DUCKDB))
_HEAD = (
    CLEAN,
    CLEAN_LOCAL,
    *_of(Task.CLEAN, spark.ENTRIES, engines.ENTRIES),
    MERGE,
    MERGE_LOCAL,
    *_of(Task.MERGE, spark.ENTRIES, engines.ENTRIES),
)


def quick(scale: float) -> list[Case]:
    """The goals that a few minutes can show."""
    records = int(BASE_RECORDS * scale / 2)
    return [
        Case("base", Shape(1000, "uniform", None, 1, records), (*_SPARK_AND_ENGINES, kafka.ENTRIES[0]), 3),
        Case("little changed", Shape(1000, "append", 0.01, 1, records * 2, segments=CLUSTERED_SEGMENTS), _PEERS, 3),
        Case("lanes of the head", Shape(1000, "uniform", None, 1, records), _HEAD, 2),
        *_whole(int(BASE_RECORDS * scale / 2), 1),
    ]


def _whole(base: int, runs: int) -> list[Case]:
    """Whole processes, and what a job costs at least."""
    small = Shape(1000, "uniform", None, 1, base // SMALL_PART, landed=SMALL_FILES)
    return [
        Case("processes", small, processes.ENTRIES, runs),
        Case("processes", Shape(1000, "uniform", None, 1, base), processes.ENTRIES, runs),
        Case("fixed cost", TINY, (FULL, FULL_LOCAL), 5),
    ]


def full(scale: float) -> list[Case]:
    """Everything. At SCALE=1 no family takes ten minutes on two cores."""
    base = int(BASE_RECORDS * scale)
    small = base * 5
    """As many bytes with values of 100 B."""
    return [
        Case("base", Shape(1000, "uniform", None, 1, base), _ALL_FULL, 3),
        Case("base", Shape(100, "uniform", None, 1, small), _ALL_FULL, 3),
        Case("little changed", Shape(1000, "append", 0.01, 1, base * 5, segments=CLUSTERED_SEGMENTS), _PEERS, 3),
        Case("little changed", Shape(1000, "zipf", 0.01, 1, base), _PEERS, 3),
        Case("little changed", Shape(1000, "uniform", 0.01, 1, base), _PEERS, 3),
        Case("more changed", Shape(1000, "uniform", 0.3, 1, base), _FEW, 3),
        Case("more changed", Shape(1000, "uniform", 0.9, 1, base // 2), _FEW, 3),
        Case("keys", Shape(1000, "zipf", 0.3, 1, base // 2), _FEW, 3),
        Case("keys", Shape(1000, "append", 0.3, 1, base // 2), _FEW, 3),
        Case("keys", Shape(100, "zipf", None, 1, small), _FEW, 3),
        Case("keys", Shape(100, "append", 0.3, 1, small // 2), _FEW, 3),
        Case("partitions", Shape(1000, "uniform", None, 8, base), _FEW, 3),
        Case("partitions", Shape(1000, "uniform", None, 64, base), _FEW, 3),
        Case("lanes of the head", Shape(1000, "uniform", None, 1, base), _HEAD, 3),
        *(
            Case("growth", Shape(1000, "uniform", None, 1, base // 2 * times, 6 * times), _FEW, 3)
            for times in (1, 2, 4, 8)
        ),
        *_whole(base, 3),
        Case("large", Shape(1000, "uniform", None, 1, int(base * 12.5), 48), _LARGE, 1),
    ]
