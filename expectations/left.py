"""Segments of the tail that a full clean leaves where they are, because they lose nothing: whether that is so.

Only keys and offsets are read of them, and values only of files that have tombstones. The few keys of the head go to
where those keys are, not the other way round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from expectations.claim import BURIED, TAIL
from expectations.figures import with_figures
from expectations.offenders import SAMPLES_PER_RULE, Samples
from expectations.reading import is_tombstone, places
from expectations.shown import shown_key
from expectations.verdict import Sample
from expectations.wording import key_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from expectations.claim import Claim
    from expectations.reading import Reading
    from expectations.shown import Shown

SUPERSEDED, DUE = "left_superseded", "left_due"
LEFT_RULES = (SUPERSEDED, DUE)

_WITHIN = ("topic", "partition")
_SAID = {
    SUPERSEDED: ("the record is in a segment left in place", "nothing: the plan has read a newer record of its key"),
    DUE: (
        "the tombstone is in a segment left in place",
        "stamped with its delete horizon, or removed if that has passed",
    ),
}


def left_behind(left: DataFrame, inputs: DataFrame, claims: Sequence[Claim], reading: Reading) -> list[DataFrame]:
    """Rows of topic, partition and how many records of `left` break which of the LEFT_RULES."""
    return [
        found.groupBy(*_WITHIN).agg(F.count(F.lit(1)).alias(rule))
        for rule, found in _offending(left, inputs, claims, reading).items()
    ]


def left_offenders(
    left: DataFrame, inputs: DataFrame, claims: Sequence[Claim], reading: Reading, shown: Shown
) -> dict[int, Samples]:
    """Samples of what breaks the LEFT_RULES, by the place of the plan among the claims, lowest offsets first."""
    found: dict[int, Samples] = {}
    numbers = {(claim.topic, claim.partition): number for number, claim in enumerate(claims)}
    for rule, offending in _offending(left, inputs, claims, reading).items():
        first = F.row_number().over(Window.partitionBy(*_WITHIN).orderBy("offset"))
        key = shown_key(F.col("key"), offending.schema["key"].dataType, shown).alias("key")
        rows = offending.select(*_WITHIN, "offset", key, first.alias("place"))
        for row in rows.where(F.col("place") <= SAMPLES_PER_RULE).orderBy("place").collect():
            samples = found.setdefault(numbers[row["topic"], row["partition"]], {})
            samples[rule] = (*samples.get(rule, ()), Sample(row["offset"], key_text(row["key"]), *_SAID[rule]))
    return found


def _offending(left: DataFrame, inputs: DataFrame, claims: Sequence[Claim], reading: Reading) -> dict[str, DataFrame]:
    kept = left.selectExpr(*places(reading), f"{is_tombstone(reading)} AS tombstone")
    # The tail holds each key once (C16), so that what supersedes one of its records is in the head.
    head = inputs.selectExpr(*places(reading)).where(f"level < {TAIL} AND level != {BURIED} AND key IS NOT NULL")
    # Clean, and not stamped yet (C8), or past its horizon and not the log end (C9).
    due = (
        "plan IS NOT NULL AND (clean_below IS NULL OR offset < clean_below) "
        "AND if(horizon IS NULL, true, horizon <= now AND offset != log_end)"
    )
    tombstones = with_figures(kept.where("tombstone"), claims, "plan", "now", "clean_below", "log_end")
    return {
        SUPERSEDED: kept.join(head.select(*_WITHIN, "key"), [*_WITHIN, "key"], "left_semi"),
        DUE: tombstones.where(due),
    }
