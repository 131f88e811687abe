"""Which segments share a task, and so which become one output segment.

Values never go through a shuffle: a Spark task reads some segments that are neighbours in offset order and writes one.
Iceberg's own scan planning packs them, in the order in which the stage lists them (Iceberg docs, "Spark configuration",
read options): with a lookback of 1 a bin is closed before the next is opened.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipeline.compact.working import column
from pipeline.lake.columns import Columns
from pipeline.lake.spark import of_topic_partition
from pipeline.plan import Plan
from pipeline.plan.plan import Input, span
from pipeline.plan.staying import series
from pipeline.segments.segment import TAIL

MOST_SCANS = 16
"""So many series of segments are packed each by a scan of its own; segments of further ones are written one by one."""

MOST_SEGMENTS = 8
"""A task reads at most so many times ``segment.bytes``, however little is left of it."""
_FULL = 0.9


@dataclass(frozen=True)
class Scan:
    """One read of a stage: Iceberg's read options, and which of its records (None: all)."""

    options: Mapping[str, str]
    where: Column | None = None


def scans(
    plans: Sequence[Plan], stay: frozenset[str], columns: Columns, left: Mapping[str, float] | None = None
) -> list[Scan]:
    """How to read what is rewritten of ``plans`` so that no task reads across a segment that stays.

    Its output would span that segment's offsets, and segments are ranges of offsets. ``left`` says about how many of a
    segment's records will be written, by path: a task reads as much as fills a segment.
    """
    if not stay and (len(plans) > 1 or not left):
        return [Scan(_packed(plans))]
    shares = _Shares(left or {})
    every = [(plan, part) for plan in plans for found in series(plan, stay) for part in shares.parts(plan, found)]
    every.sort(key=lambda item: -len(item[1]))
    together = [(plan, found) for plan, found in every if len(found) > 1][:MOST_SCANS]
    own = [_range(plan, found, columns) for plan, found in together]
    packed = [Scan(_packed(plans, shares.of(part)), where) for (_, part), where in zip(together, own, strict=True)]
    if len(together) == len(every):
        return packed
    others = reduce(lambda left, right: left & right, (~where for where in own), F.lit(True))
    return [*packed, Scan(_one_by_one(plans), others)]


def write_options(plan: Plan) -> dict[str, str]:
    """Options that leave the tasks as they were read: no shuffle, no sort, rolled at ``segment.bytes``.

    The records of a task may be of several Iceberg partitions in turn (levels of side tables, topic partitions that
    share a task, fields that the table is partitioned by beside Firn's own): it writes a segment for each, all open at
    the same time.
    """
    return {
        "use-table-distribution-and-ordering": "false",
        "fanout-enabled": "true",
        "target-file-size-bytes": str(plan.segment_bytes),
    }


@dataclass(frozen=True)
class _Shares:
    """What is left of segments, by ``scans``."""

    left: Mapping[str, float]

    def of(self, found: Sequence[Input]) -> float:
        """The part of the records of ``found`` that will be written."""
        return sum(map(self._left_of, found)) / max(1, sum(one.records for one in found))

    def parts(self, plan: Plan, found: Sequence[Input]) -> Iterator[tuple[Input, ...]]:
        """Tail and head apart, unless they fit into one segment: much may be left of one, and little of the other."""
        if sum(one.bytes for one in found) * self.of(found) <= plan.segment_bytes:
            yield tuple(found)
        else:
            yield from (tuple(part) for _, part in groupby(found, key=lambda one: one.level == TAIL))

    def _left_of(self, segment: Input) -> float:
        return self.left.get(segment.path, segment.records)


def _packed(plans: Sequence[Plan], share: float = 1.0) -> dict[str, str]:
    """One task takes the inputs of one output segment."""
    whole = plans[0].inputs_per_segment
    if whole is None:
        # A little less than fills a segment: what is left over would be a segment of its own, and a small one.
        times = 1.0 if share > _FULL else _FULL / max(share, 1 / MOST_SEGMENTS)
        # Opening a file counts nothing: the point is to have few segments.
        return {"lookback": "1", "split-size": str(int(plans[0].segment_bytes * times)), "file-open-cost": "1"}
    return _by_number(plans, whole)


def _one_by_one(plans: Sequence[Plan]) -> dict[str, str]:
    return _by_number(plans, 1)


def _by_number(plans: Sequence[Plan], segments: int) -> dict[str, str]:
    """When opening costs more than any file's bytes, every file weighs the same: a bin is a number of files (C13)."""
    weight = max(segment.bytes for plan in plans for segment in plan.inputs)
    return {"lookback": "1", "split-size": str(weight * segments), "file-open-cost": str(weight)}


def _range(plan: Plan, found: Sequence[Input], columns: Columns) -> Column:
    """The records of ``found``, which are neighbours: no other segment of the plan has offsets between theirs."""
    offsets = span(found)
    if offsets is None:
        return F.lit(False)
    return of_topic_partition(columns, plan.topic, plan.partition) & column(columns.offset).between(*offsets)
