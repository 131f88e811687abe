"""Reading a stage: the records that a job takes, with everything that is told of them before keys are compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from expectations.reading import Reading, fingerprint
from pipeline.compact.figures import with_figures
from pipeline.compact.layout import Scan
from pipeline.compact.newest import FILE
from pipeline.compact.rounds import EVERYTHING, Round
from pipeline.compact.working import KEY, OFFSET, WAS_BURIED, column, with_working_columns
from pipeline.lake import Lake
from pipeline.lake.columns import Columns
from pipeline.lake.condition import quoted
from pipeline.plan import Plan
from pipeline.policy.policy import Samples
from pipeline.segments.segment import TAIL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FINGERPRINT = "_firn_fingerprint"
"""A bigint over all that a cleaning must leave as it is (C1), as the expectations compute it."""

_PLACE = "_firn_place"


@dataclass(frozen=True)
class Reader:
    """Reads the snapshots of one stage in the terms of its plans. ``samples`` says what refusals show of records."""

    spark: "SparkSession"
    name: str
    columns: Columns
    plans: Sequence[Plan]
    samples: Samples = "keys"

    def records(self, tag: str, scans: Sequence[Scan] = (Scan({}),), part: Round = EVERYTHING) -> DataFrame:
        """The records under ``tag`` of one round, each scan packing segments into tasks in its own way."""
        found = reduce(DataFrame.unionByName, [self._scan(tag, scan) for scan in scans])
        offset = column(self.columns.offset)
        if part.lowest is not None:
            found = found.where(offset >= part.lowest)
        if part.highest is not None:
            found = found.where(offset <= part.highest)
        return found

    def head(self, tag: str) -> DataFrame:
        """The records under ``tag`` that are not of the tail; by their partition, so that no other file is opened."""
        level = column(self.columns.level)
        return self._scan(tag, Scan({}, level.isNull() | (level != TAIL)))

    def tail(self, tag: str) -> DataFrame:
        """The records of the tail under ``tag``, and the FILE of each."""
        return self._scan(tag, Scan({}, column(self.columns.level) == TAIL), with_file=True)

    def _scan(self, tag: str, scan: Scan, *, with_file: bool = False) -> DataFrame:
        reader = self.spark.read.option("versionAsOf", tag)
        for key, value in scan.options.items():
            reader = reader.option(key, value)
        records = reader.table(self.name)
        # Before anything else is done to a record: it is what the records written are held against.
        kept = Reading(level=self.columns.level, delete_horizon=self.columns.delete_horizon)
        records = records.withColumn(FINGERPRINT, fingerprint(records, kept))
        if with_file:
            records = records.select("*", F.col("_file").alias(FILE))
        if scan.where is not None:
            records = records.where(scan.where)
        return with_figures(with_working_columns(records, self.columns), self.columns, self.plans)


def buried_once(inputs: DataFrame) -> DataFrame:
    """``inputs`` without the copies of a tombstone that was restored once and removed again: it is buried twice.

    (Not by dropDuplicates: it makes every column nullable, and a table may require some.)
    """
    place = F.row_number().over(Window.partitionBy(KEY, OFFSET).orderBy(OFFSET))
    buried = inputs.where(F.col(WAS_BURIED)).withColumn(_PLACE, place).where(F.col(_PLACE) == 1).drop(_PLACE)
    return inputs.where(~F.col(WAS_BURIED)).unionByName(buried)


def spark_name(lake: Lake, identifier: str) -> str:
    """``identifier`` as Spark SQL quotes it, in the lake's catalog."""
    return ".".join(quoted(part) for part in (lake.name, *identifier.split(".")))
