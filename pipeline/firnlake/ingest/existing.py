"""What metadata tells about the files that a table has when it is adopted; no record is read."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import numpy as np
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table

from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.manifests import ahead
from firnlake.ingest.spark_sql import number_repeated, rewrite_files
from firnlake.table.arrays import UNKNOWN, Arrays, arrays_of
from firnlake.table.classifier import REWRITE, ColumnMetrics
from firnlake.table.columns import ColumnRoles
from firnlake.table.manifest_rows import decode, fetch
from firnlake.table.segment import Segments, UnassignedFile
from firnlake_expectations.wording import count


class ObstacleKind(StrEnum):
    """The kinds of problems that files can have."""

    LEFT_OUT = "files left out"
    WAITING = "segments that wait"
    REPEATED = "repeated offsets"


@dataclass(frozen=True)
class FileObstacle:
    """What keeps ``files`` data files from being cleaned, in one ``text`` for all of them.

    ``remedy`` says what to do, with the statements ``spark_sql``; both are empty if only the files themselves tell.
    """

    kind: ObstacleKind
    files: int
    text: str
    remedy: str = ""
    spark_sql: tuple[str, ...] = ()


def obstacles(lake: Lake, identifier: str, columns: ColumnRoles, segments: Segments) -> tuple[FileObstacle, ...]:
    """The obstacles in ``segments`` of the adopted table ``identifier``, at most one of each kind."""
    arrays = arrays_of(segments)
    found = (
        _left_out(lake, identifier, segments.strays),
        _waiting(segments, arrays),
        _repeated(lake, identifier, columns, arrays),
    )
    return tuple(one for one in found if one)


def _left_out(lake: Lake, identifier: str, strays: tuple[UnassignedFile, ...]) -> FileObstacle | None:
    if not strays:
        return None
    ((reason, number),) = Counter(map(_found, strays)).most_common(1)
    example = next(stray for stray in strays if _found(stray) == reason)
    text = (
        f"{count(len(strays), 'file')}, because the topic partition of their records is not known; the commonest "
        f"reason ({count(number, 'file')}): {example.path} {reason}"
    )
    if not any(REWRITE in stray.problem for stray in strays):
        remedy = "give the records a topic and a partition; until then readers see them, and Firn does not clean them"
        return FileObstacle(ObstacleKind.LEFT_OUT, len(strays), text, remedy)
    remedy = "once the table is adopted and no writer uses the old partitioning any more, rewrite the files with Spark"
    return FileObstacle(ObstacleKind.LEFT_OUT, len(strays), text, remedy, (rewrite_files(lake, identifier),))


def _found(stray: UnassignedFile) -> str:
    """The problem, without what is allowed."""
    return stray.problem.partition("; allowed: ")[0]


def _waiting(segments: Segments, arrays: Arrays) -> FileObstacle | None:
    number = len(arrays.problem) - arrays.problem.null_count
    if not number:
        return None
    first = next(segment for segment in segments if segment.problem)
    text = f"{count(number, 'segment')}, with their topic partitions; the first: segment {first} {first.problem}"
    return FileObstacle(ObstacleKind.WAITING, number, text)


def _repeated(lake: Lake, identifier: str, columns: ColumnRoles, arrays: Arrays) -> FileObstacle | None:
    """Files with more records than there are integers from their lowest to their highest offset.

    Repeated listings of a file, and records that row-level deletes may hide, do not count.
    """
    known = (arrays.base_offset >= 0) & (arrays.hidden != UNKNOWN)
    visible = arrays.records // arrays.copies - np.where(known, arrays.hidden, 0)
    # The difference comes before the 1, so that no pair of offsets overflows.
    surplus = np.where(known, visible - (arrays.last_offset - arrays.base_offset) - 1, 0)
    proven = surplus > 0
    if not proven.any():
        return None
    worst, files, offset = int(surplus.argmax()), int(proven.sum()), columns.offset
    owner = arrays.topic_partition(int(np.searchsorted(arrays.starts, worst, side="right")) - 1)
    text = (
        f"at least {count(int(surplus[proven].sum()), 'record')} in {count(files, 'file')} have the same {offset} as "
        f"another record; most in {arrays.path[worst].as_py()} of {owner}: {int(visible[worst]):,} records from "
        f"{offset} {arrays.base_offset[worst]} to {arrays.last_offset[worst]}. Copies of one record do no harm, but "
        f"different records with one {offset} make their topic partition wait"
    )
    remedy = (
        "order by Kafka's offset if the table has it; otherwise number these records before Firn's first run, with "
        "Spark: if the first statement finds nothing, run the second (docs/operations.md, Records with the same offset)"
    )
    return FileObstacle(ObstacleKind.REPEATED, files, text, remedy, number_repeated(lake, identifier, columns))


@dataclass(frozen=True)
class NullOffsets:
    """NULLs in the offset column, by the null counts in manifests: ``records`` in ``files`` files. Row-level deletes
    are not subtracted. ``unknown`` is the number of files without such a count."""

    records: int
    files: int
    unknown: int

    @classmethod
    def of(cls, table: Table, column: str) -> "NullOffsets":
        """Count the NULLs of ``column`` in the current snapshot of ``table``."""
        counts = list(_null_counts(table, column))
        known = [number for number in counts if number is not None]
        return cls(sum(known), sum(number > 0 for number in known), len(counts) - len(known))


def _null_counts(table: Table, column: str) -> Iterator[int | None]:
    """The number of NULLs in ``column`` of each data file; None where the manifest does not say."""
    snapshot = table.current_snapshot()
    listed = snapshot.manifests(table.io) if snapshot else []
    metrics = ColumnMetrics.of(table.schema().find_field(column), table.specs())
    data = (one for one in listed if one.content == ManifestContent.DATA)
    for manifest, content in ahead(partial(fetch, table.io), data):
        yield from (metrics.nulls(file) if file.records else 0 for file in decode(content, manifest))
