"""A writer that appends to a topic partition of its own; its records follow from a seed."""

import logging
from multiprocessing.synchronize import Event
from random import Random
from typing import NamedTuple

from pyiceberg.exceptions import CommitFailedException
from sqlalchemy.exc import OperationalError

from firnlake.iceberg.catalog import Lake
from tests.support.records import rows_of
from tests.support.topics import NOW, Record, foreign_rows

KEYS = 40
BATCH = 10
"""At most so many records a commit."""
PAUSE_SECONDS = 5.0
"""Between two commits: with less, appenders and readers leave two cores no time to clean."""


class Appended(NamedTuple):
    """The account of one writer: all offsets below ``log_end`` of its partition are in the table."""

    partition: int
    log_end: int
    commits: int
    refused: int
    """Commits that the catalog refused though PyIceberg had tried again and again."""


def record(seed: int, partition: int, offset: int) -> Record:
    """The record that is at ``offset``, whoever asks."""
    random = Random(f"{seed} {partition} {offset}")  # noqa: S311  # a seed is what it is for
    key = None if random.random() < 0.02 else b"k%d" % random.randrange(KEYS)
    value = None if key is not None and random.random() < 0.15 else random.randbytes(20)
    return Record(offset, key, value, partition, NOW - 1_000_000 + offset)


def append(lake: Lake, table: str, partition: int, seed: int, stop: Event) -> Appended:
    """Append until ``stop``."""
    # PyIceberg warns of each try that loses a race: hundreds of lines among the figures.
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    random = Random(f"{seed} {partition}")  # noqa: S311  # a seed is what it is for
    log_end = commits = refused = 0
    while not stop.is_set():
        batch = [record(seed, partition, log_end + one) for one in range(random.randint(1, BATCH))]
        try:
            lake.table(table).append(foreign_rows(rows_of(batch)))
        except (CommitFailedException, OperationalError):
            refused += 1
            log_end = _log_end(lake, table, partition)
            continue
        log_end += len(batch)
        commits += 1
        stop.wait(PAUSE_SECONDS)
    return Appended(partition, log_end, commits, refused)


def _log_end(lake: Lake, table: str, partition: int) -> int:
    """The log end is never removed (C4)."""
    offsets = lake.table(table).scan(f"partition == {partition}", selected_fields=("offset",)).to_arrow()
    return max(offsets["offset"].to_pylist(), default=-1) + 1
