"""Samples of the records that break a rule: queried only when something was broken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from expectations.rules import EXPECTED_HORIZON, weights
from expectations.sayings import SAYINGS, details
from expectations.shown import shown_key
from expectations.verdict import Sample
from expectations.wording import count, key_text

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark.sql import DataFrame

    from expectations.claim import Claim
    from expectations.shown import Shown

SAMPLES_PER_RULE = 10

Samples = dict[str, tuple[Sample, ...]]
"""Samples by the rule that they break."""


def offenders(
    groups: DataFrame, broken: Collection[str], claims: Sequence[Claim], shown: Shown
) -> dict[int | None, Samples]:
    """Up to SAMPLES_PER_RULE samples for each of the broken rules of each plan (by its place among the claims; None:
    of no plan), lowest offsets first, in one query."""
    rules = ", ".join(
        f"if({weight} > 0, '{name}', NULL)" for name, weight in weights(claims[0].lane).items() if name in broken
    )
    rows = (
        groups.where("role != 'word'")
        .withColumn("expected_horizon", F.expr(EXPECTED_HORIZON))
        .withColumn("offset", F.coalesce("in_max", "out_max"))
        .withColumn("key", shown_key(F.col("key"), groups.schema["key"].dataType, shown))
        .withColumn("rule", F.expr(f"explode(filter(array({rules}), name -> name IS NOT NULL))"))
        .withColumn("place", F.row_number().over(Window.partitionBy("plan", "rule").orderBy("offset", "key")))
        .where(F.col("place") <= SAMPLES_PER_RULE)
        .collect()
    )
    found: dict[int | None, Samples] = {}
    for row in sorted(rows, key=lambda row: int(row["place"])):
        number = row["plan"]
        # What is of no plan offends them all: it is told as the first one would have it.
        words, said = details(row.asDict(), claims[number or 0]), SAYINGS[row["rule"]]
        sample = Sample(row["offset"], key_text(row["key"]), said.found.format(**words), said.expected.format(**words))
        of_plan = found.setdefault(number, {})
        of_plan[row["rule"]] = (*of_plan.get(row["rule"], ()), sample)
    return found


def contradictions(records: DataFrame, shown: Shown) -> dict[tuple[str, int], tuple[int, tuple[Sample, ...]]]:
    """How many offsets hold different `records`, and the lowest of them, by topic and partition."""
    within = ("topic", "partition")
    differing = (
        records.where("offset IS NOT NULL")
        .groupBy(*within, "offset")
        .agg(
            F.min("fingerprint").alias("least"),
            F.max("fingerprint").alias("most"),
            F.count(F.lit(1)).alias("times"),
            F.min(shown_key(F.col("key"), records.schema["key"].dataType, shown)).alias("key"),
        )
        .where("least != most")
    )
    all_of_plan = Window.partitionBy(*within)
    rows = (
        differing.withColumn("number", F.count(F.lit(1)).over(all_of_plan))
        .withColumn("place", F.row_number().over(all_of_plan.orderBy("offset")))
        .where(F.col("place") <= SAMPLES_PER_RULE)
        .collect()
    )
    found: dict[tuple[str, int], tuple[int, tuple[Sample, ...]]] = {}
    for row in sorted(rows, key=lambda row: int(row["place"])):
        said = f"{count(row['times'], 'record')}, not all the same"
        _, before = found.get((row["topic"], row["partition"]), (0, ()))
        sample = Sample(row["offset"], key_text(row["key"]), said, "one record")
        found[row["topic"], row["partition"]] = (row["number"], (*before, sample))
    return found


def repeated_keys(per_key: DataFrame, shown: Shown) -> tuple[Sample, ...]:
    """The keys with the most records, from rows of `key` and `records`."""
    rows = (
        per_key.where(F.col("records") > 1)
        .orderBy(F.desc("records"), "key")
        .limit(SAMPLES_PER_RULE)
        .select(shown_key(F.col("key"), per_key.schema["key"].dataType, shown).alias("key"), "records")
        .collect()
    )
    return tuple(Sample(None, key_text(row["key"]), count(row["records"], "record"), "one record") for row in rows)
