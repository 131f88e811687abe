"""Samples of the records that break a rule: queried only when something was broken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from expectations.rules import expected_horizon, weights
from expectations.sayings import SAYINGS, details
from expectations.verdict import Sample
from expectations.wording import KEY_BYTES, count, key_text

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import Column, DataFrame

    from expectations.claim import Claim

SAMPLES_PER_RULE = 10


def _shown_key(records: DataFrame) -> Column:
    """As much of a key as can matter for a sample; one that is no bytes, as Spark writes it."""
    key = F.col("key")
    whole = key if isinstance(records.schema["key"].dataType, BinaryType) else key.cast("string")
    return F.substring(whole, 1, KEY_BYTES)


def offenders(groups: DataFrame, broken: Collection[str], claim: Claim) -> dict[str, tuple[Sample, ...]]:
    """Up to SAMPLES_PER_RULE samples for each of the broken rules, lowest offsets first, in one query."""
    rules = F.array(*(F.when(weight > 0, name) for name, weight in weights(claim).items() if name in broken))
    rows = (
        groups.where(F.col("role") != "word")
        .withColumn("expected_horizon", expected_horizon(claim))
        .withColumn("offset", F.coalesce("in_max", "out_max"))
        .withColumn("key", _shown_key(groups))
        .withColumn("rule", F.explode(F.filter(rules, lambda name: name.isNotNull())))
        .withColumn("place", F.row_number().over(Window.partitionBy("rule").orderBy("offset", "key")))
        .where(F.col("place") <= SAMPLES_PER_RULE)
        .collect()
    )
    found: dict[str, tuple[Sample, ...]] = {}
    for row in sorted(rows, key=lambda row: int(row["place"])):
        words, said = details(row.asDict(), claim), SAYINGS[row["rule"]]
        sample = Sample(row["offset"], key_text(row["key"]), said.found.format(**words), said.expected.format(**words))
        found[row["rule"]] = (*found.get(row["rule"], ()), sample)
    return found


def contradictions(records: DataFrame) -> tuple[int, tuple[Sample, ...]]:
    """How many offsets hold different `records`, and the lowest of them."""
    differing = (
        records.groupBy("offset")
        .agg(
            F.min("fingerprint").alias("least"),
            F.max("fingerprint").alias("most"),
            F.count(F.lit(1)).alias("times"),
            F.min(_shown_key(records)).alias("key"),
        )
        .where(F.col("offset").isNotNull() & (F.col("least") != F.col("most")))
    )
    number = differing.count()
    rows = differing.orderBy("offset").limit(SAMPLES_PER_RULE).collect() if number else []
    return number, tuple(
        Sample(row["offset"], key_text(row["key"]), f"{count(row['times'], 'record')}, not all the same", "one record")
        for row in rows
    )


def repeated_keys(per_key: DataFrame) -> tuple[Sample, ...]:
    """The keys with the most records, from rows of `key` and `records`."""
    rows = (
        per_key.where(F.col("records") > 1)
        .orderBy(F.desc("records"), "key")
        .limit(SAMPLES_PER_RULE)
        .select("key", "records")
        .collect()
    )
    return tuple(Sample(None, key_text(row["key"]), count(row["records"], "record"), "one record") for row in rows)
