"""The values of sampled records, read only if a report may show them: the comparison does not hold values."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from expectations.tables import AFTER, BEFORE, IN_PLACE, SHOWN
from expectations.wording import KEY_BYTES, key_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from expectations.claim import Claim
    from expectations.column_mapping import Reading
    from expectations.findings import Findings
    from expectations.tables import Part

Place = tuple[str, int, int]
"""Topic, partition and offset."""

_ORDER = (BEFORE, SHOWN, IN_PLACE, AFTER)
"""The order of the sides: a sample shows the value of the first side that has one."""


def wanted(findings: Iterable[Findings], claims: Iterable[Claim]) -> frozenset[Place]:
    """The places of all samples."""
    return frozenset(
        (claim.topic, claim.partition, sample.offset)
        for claim, one in zip(claims, findings, strict=True)
        for samples in one.samples.values()
        for sample in samples
        if sample.offset is not None
    )


def values_of(parts: Iterable[Part], reading: Reading, places: frozenset[Place]) -> dict[Place, str | None]:
    """The values at `places`, cut as a report shows them."""
    told: dict[Place, str | None] = {}
    offsets = pa.array(sorted({offset for _, _, offset in places}), pa.int64())
    for part in sorted(parts, key=lambda part: _ORDER.index(part.side)) if places else ():
        for records in part.read(None):
            chosen = records.filter(pc.is_in(records.column(reading.offset).cast(pa.int64()), offsets))
            for row in chosen.to_pylist():
                place = (
                    row[reading.topic] if reading.topic else reading.topic_name,
                    row[reading.partition] if reading.partition else 0,
                    row[reading.offset],
                )
                if place in places:
                    told.setdefault(place, _text(row, reading))
    return told


def with_values(
    findings: Sequence[Findings], claims: Sequence[Claim], values: Mapping[Place, str | None]
) -> list[Findings]:
    """The findings with the record's value added to each sample."""
    return [
        replace(
            one,
            samples={
                rule: tuple(
                    replace(sample, value=values.get((claim.topic, claim.partition, sample.offset or 0)))
                    if sample.offset is not None
                    else sample
                    for sample in samples
                )
                for rule, samples in one.samples.items()
            },
        )
        for one, claim in zip(findings, claims, strict=True)
    ]


def _text(row: Mapping[str, Any], reading: Reading) -> str | None:
    """The value as text; for a table without a column `value`, all of a record except its key and place."""
    if "value" in row:
        whole = row["value"]
        return key_text(whole[:KEY_BYTES] if isinstance(whole, bytes) else whole)
    own = (*reading.key, reading.offset, reading.topic, reading.partition, reading.level, reading.delete_horizon)
    return key_text(json.dumps({name: value for name, value in row.items() if name not in own}, default=_plain))


def _plain(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
