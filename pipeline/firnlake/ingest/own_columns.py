"""Reads the records of a file with columns of one's own, and gives them offsets and the columns of their table.

If a column of times orders the records, an offset is the time in microseconds since the epoch, or the next number that
is free in the topic partition: each record needs a number of its own.
"""

from array import array
from bisect import bisect_left
from itertools import repeat
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from firnlake.errors import RefusedError
from firnlake.iceberg.keys import NO_KEY, Longs
from firnlake.ingest.adopt import Choice
from firnlake.ingest.append import by_topic_partition

NONE: Final = np.empty(0, np.int64)
_INTEGERS: Final = (pa.types.is_integer,)
_TIMES: Final = (pa.types.is_timestamp, pa.types.is_date)
_ALLOWED: Final = {
    "order": ((*_INTEGERS, *_TIMES), "int, long, date or timestamp"),
    "topic": ((pa.types.is_string, pa.types.is_large_string), "text"),
    "partition": (_INTEGERS, "int or long"),
}
"""Types of the columns by which records are ordered and divided, and their names in messages."""


def check_columns(found: pa.Table, choice: Choice, path: Path) -> None:
    """Refuse columns that are missing, and those that order or divide the records if they hold NULL or other types."""
    roles = {"order": choice.offset, "topic": choice.topic, "partition": choice.partition}
    named = [*(("key", name) for name in choice.key), ("timestamp", choice.timestamp), *roles.items()]
    for role, name in named:
        if name is not None and name not in found.column_names:
            raise RefusedError(
                f"file {path} has no column {name}, which is given as the {role}; found: "
                f"{', '.join(found.column_names)}"
            )
    for role, name in roles.items():
        if name is None:
            continue
        are_allowed, allowed = _ALLOWED[role]
        if not any(is_allowed(found[name].type) for is_allowed in are_allowed):
            raise RefusedError(
                f"file {path}: column {name} can't be the {role}: it is {found[name].type}; allowed: {allowed}"
            )
        if nulls := found[name].null_count:
            raise RefusedError(
                f"file {path}: column {name}, the {role}, is NULL in {nulls} of {found.num_rows} records; allowed: "
                "no NULL"
            )


def check_unique(found: pa.Table, choice: Choice, identifier: str, path: Path) -> None:
    """Refuse integers that can't be offsets: negative ones, and one that a topic partition holds twice."""
    order = choice.offset
    lowest = pc.min(found[order]).as_py()
    if lowest is not None and lowest < 0:
        raise RefusedError(f"file {path}: column {order}, the order, holds {lowest}; allowed: 0 or more")
    for part in by_topic_partition(found, choice.topic, choice.partition, order):
        same = pc.equal(part[order][1:], part[order][:-1])
        if pc.any(same).as_py():
            first = part.slice(pc.index(same, True).as_py(), 1)
            topic = first[choice.topic][0] if choice.topic else identifier.rpartition(".")[2]
            partition = first[choice.partition][0] if choice.partition else 0
            raise RefusedError(
                f"file {path}: column {order}, the order, holds {first[order][0]} more than once in topic partition "
                f"{topic}-{partition}; allowed: each number once, or a column of times"
            )


def micros_of(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Dates or ``times`` in microseconds since the epoch."""
    return times.cast(pa.timestamp("us", getattr(times.type, "tz", None))).cast(pa.int64())


def sorted_micros(times: pa.ChunkedArray, name: str, path: Path) -> Longs:
    """As ``micros_of``, for a column of a file, in order and not empty; refuses times before the epoch."""
    micros = micros_of(times)
    if micros[0].as_py() < 0:
        raise RefusedError(f"file {path}: column {name}, the order, holds {times[0]}; allowed: times from 1970 on")
    numbers: Longs = micros.to_numpy()
    return numbers


def free_offsets(micros: Longs, used: Longs = NONE, codes: Longs = NONE, above: Longs = NONE) -> Longs:
    """An offset for each of ``micros``, which are in order: the number itself, or the next one that is neither among
    the ``used`` ones nor that of another record.

    If the keys' ``codes`` are given, the offset is also higher than the number in ``above``, and than the offsets of
    the records of its key before it.
    """
    numbers, last = _FreeNumbers(np.sort(used)), dict[int, int]()
    offsets = []
    keys, lowest = (codes.tolist(), above.tolist()) if len(codes) else (repeat(NO_KEY), repeat(-1))
    for micro, key, bound in zip(micros.tolist(), keys, lowest, strict=False):
        offset = numbers.take(max(micro, bound + 1, last.get(key, -1) + 1))
        if key != NO_KEY:
            last[key] = offset
        offsets.append(offset)
    return np.array(offsets, np.int64)


class _FreeNumbers:
    """The numbers that are neither among the ``used`` ones, which are sorted, nor taken."""

    def __init__(self, used: Longs) -> None:
        # Searching an array of Python takes a tenth of the time of searching numpy's.
        self._used = array("q", used.tobytes())
        self._next: dict[int, int] = {}
        """Leads from a number that is not free to a higher one. It gets longer steps with each search."""

    def take(self, number: int) -> int:
        """Take the lowest free number from ``number`` on."""
        passed = []
        while number in self._next or self._is_used(number):
            passed.append(number)
            number = self._next.get(number, number + 1)
        self._next[number] = number + 1
        for one in passed:
            self._next[one] = number + 1
        return number

    def _is_used(self, number: int) -> bool:
        place = bisect_left(self._used, number)
        return place < len(self._used) and self._used[place] == number


def fitting(found: pa.Table, schema: Schema, path: Path) -> pa.Table:
    """``found`` with the columns and types of ``schema``; a column that the file lacks is NULL."""
    columns = {}
    for column in schema_to_pyarrow(schema):
        if column.name not in found.column_names:
            columns[column.name] = pa.nulls(found.num_rows, column.type)
            continue
        kind = found[column.name].type
        try:
            # Arrow would take a number for a time in whatever unit the column has.
            if pa.types.is_temporal(kind) != pa.types.is_temporal(column.type) and not pa.types.is_null(kind):
                raise pa.ArrowInvalid
            columns[column.name] = found[column.name].cast(column.type)
        except pa.ArrowException as error:
            raise RefusedError(
                f"file {path}: column {column.name} is {kind}, and the table's column {column.type}, which does not "
                "hold all its values; allowed: values that fit"
            ) from error
    return pa.table(columns)
