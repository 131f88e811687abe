"""The values of sampled records, read where a report may show them: values are no part of what is compared."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from expectations.reading import places, quoted
from expectations.wording import KEY_BYTES, key_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from expectations.claim import Claim
    from expectations.reading import Reading
    from expectations.verdict import Sample

_PLACES = pa.schema({"topic": pa.string(), "partition": pa.int64(), "offset": pa.int64()})

Samples = dict[str, tuple["Sample", ...]]


def with_values(
    samples: Sequence[Mapping[str, tuple[Sample, ...]]],
    sides: Sequence[DataFrame],
    claims: Sequence[Claim],
    reading: Reading,
) -> list[Samples]:
    """`samples` by rule, of each of `claims`, with the value of the record at each offset: as the first of `sides` has
    it that has one."""
    wanted = {
        (claim.topic, claim.partition, sample.offset)
        for claim, of_plan in zip(claims, samples, strict=True)
        for found in of_plan.values()
        for sample in found
        if sample.offset is not None
    }
    values = _values(wanted, sides, reading) if wanted else {}
    return [
        {
            rule: tuple(
                replace(sample, value=values.get((claim.topic, claim.partition, sample.offset))) for sample in found
            )
            for rule, found in of_plan.items()
        }
        for claim, of_plan in zip(claims, samples, strict=True)
    ]


def _values(
    wanted: set[tuple[str, int, int]], sides: Sequence[DataFrame], reading: Reading
) -> dict[tuple[str, int, int | None], str | None]:
    rows = [dict(zip(_PLACES.names, place, strict=True)) for place in sorted(wanted)]
    asked = F.broadcast(sides[0].sparkSession.createDataFrame(pa.Table.from_pylist(rows, _PLACES)))
    found = reduce(DataFrame.unionByName, [_of_side(side, number, reading) for number, side in enumerate(sides)])
    told: dict[tuple[str, int, int | None], str | None] = {}
    for row in sorted(found.join(asked, _PLACES.names).collect(), key=lambda row: int(row["side"])):
        told.setdefault((row["topic"], row["partition"], row["offset"]), key_text(row["told"]))
    return told


def _of_side(records: DataFrame, number: int, reading: Reading) -> DataFrame:
    """Place and value of every record; of a table without a column `value` all that a record holds beside its key."""
    own = (*reading.key, reading.offset, reading.topic, reading.partition, reading.level, reading.delete_horizon)
    others = ", ".join(quoted(name) for name in records.columns if name not in own)
    whole = F.col("value") if "value" in records.columns else F.expr(f"to_json(struct({others}))" if others else "''")
    kind = records.schema["value"].dataType if "value" in records.columns else None
    told = whole.cast("binary") if kind is None or isinstance(kind, BinaryType) else whole.cast("string").cast("binary")
    return records.select(
        *(F.expr(sql) for sql in places(reading) if sql.endswith(tuple(f" AS {name}" for name in _PLACES.names))),
        F.lit(number).alias("side"),
        F.substring(told, 1, KEY_BYTES).alias("told"),
    )
