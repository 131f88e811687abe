"""Findings about a plan: figures, the number of violations per rule, and samples of the violations.

Values of sampled records are read only if a report may show them: the comparison does not hold values.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from firnlake_expectations.claim import Sample
from firnlake_expectations.promises.promise import HORIZON
from firnlake_expectations.promises.table import FINGERPRINT, promises_of
from firnlake_expectations.tables import AFTER, BEFORE, IN_PLACE
from firnlake_expectations.wording import KEY_BYTES, count, key_text, log_name, moment, none_of, shown_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from firnlake_expectations.claim import Claim, Finding, JudgedColumns
    from firnlake_expectations.duck import Duck
    from firnlake_expectations.promises.promise import Promise, Rule
    from firnlake_expectations.tables import Part
    from firnlake_expectations.wording import Shown


SAMPLES_PER_RULE = 10


@dataclass(frozen=True)
class Findings:
    """The findings about one plan.

    figures       counts by name
    violations    number of violations of each rule that the plan can break, also if it is 0
    samples       up to SAMPLES_PER_RULE violations per rule, lowest offsets first
    fingerprint   sum of the fingerprints of the records written
    closely       True when values were read on both sides
    """

    figures: Mapping[str, int]
    violations: Mapping[str, int]
    samples: Mapping[str, tuple[Sample, ...]]
    fingerprint: int
    closely: bool

    @property
    def broken(self) -> dict[str, int]:
        """Number of violations of each broken rule."""
        return {rule: number for rule, number in self.violations.items() if number}

    def differs(self, fingerprint: int) -> Findings:
        """The findings, plus a violation if compaction's `fingerprint` differs from that of the records written.

        The judge found the same records read and written, so compaction must have read something else.
        """
        if fingerprint == self.fingerprint or self.broken:
            return self
        return replace(self, violations={**self.violations, FINGERPRINT: 1})


@dataclass(frozen=True, slots=True)
class Row:
    """One promise about one plan: the number of items checked, the violations by column of the evidence, and the
    observation as a sentence. Nothing that a row needs counts as 0 if it is missing: KeyError is raised."""

    promise: Promise
    checked: int
    violations: Mapping[str, int]
    observed: str
    samples: tuple[Sample, ...]

    @property
    def broken(self) -> int:
        """Number of violations."""
        return sum(self.violations.values())


@dataclass(frozen=True, slots=True)
class Judgement:
    """The findings about the plan of `claim`, a row for each promise, and those of the suites of the table's owner."""

    claim: Claim
    rows: Sequence[Row]
    own: Sequence[Finding] = ()

    @property
    def passed(self) -> bool:
        """True when every promise was kept, and the suites of the table's owner are met."""
        return not any(row.broken for row in self.rows) and all(one.passed for one in self.own)


def rows(claim: Claim, findings: Findings) -> tuple[Row, ...]:
    """The rows about the plan of `claim`, one for each of its promises."""
    return tuple(_row(promise, claim, findings) for promise in promises_of(claim))


def _row(promise: Promise, claim: Claim, findings: Findings) -> Row:
    checked = findings.figures[promise.checked]
    if promise.differences is None:
        violations = {rule.name: findings.violations[rule.name] for rule in promise.rules}
        samples = tuple(chain.from_iterable(findings.samples.get(rule.name, ()) for rule in promise.rules))
        said = "; ".join(rule.say(violations[rule.name]) for rule in promise.rules if violations[rule.name])
    else:
        samples = promise.differences(findings.figures, claim)
        violations = {promise.name: len(samples)}
        said = "; ".join(f"{sample.found} ({sample.expected})" for sample in samples)
    told = said or none_of(checked, promise.noun)
    note = promise.note(findings.figures, claim) if promise.note else ""
    return Row(promise, checked, violations, "; ".join(filter(None, (told, note))) + ".", samples)


NOBODYS = -1
"""Plan number of a stranger: a record that no claim covers."""

_PLACE = {"groups": "coalesce(in_max, out_max)", "files": "NULL::BIGINT"}
"""Offset that a sample shows, as SQL, for views without an offset column."""
_KEY = {"files": "NULL"}
_MORE = {"groups": f", {HORIZON} AS expected_horizon"}


def samples_of(
    duck: Duck,
    reading: JudgedColumns,
    claims: Sequence[Claim],
    rules: Mapping[str, Rule],
    broken: Iterable[tuple[int, str]],
    shown: Shown,
) -> dict[tuple[int, str], tuple[Sample, ...]]:
    """Up to SAMPLES_PER_RULE samples for each broken rule of each plan, lowest offsets first."""
    samples: dict[tuple[int, str], tuple[Sample, ...]] = {}
    uuids = tuple(name in reading.uuids for name in reading.key)
    for name in sorted({name for _, name in broken}):
        rule = rules[name]
        assert rule.view is not None  # its violations were counted in a view
        offset, key = _PLACE.get(rule.view, '"offset"'), _KEY.get(rule.view, "key")
        rows = duck.table(
            f"""SELECT * EXCLUDE (plan), coalesce(plan, {NOBODYS}) AS of_plan, {offset} AS at_offset, {key} AS of_key
            {_MORE.get(rule.view, "")} FROM {rule.view} WHERE {weight(rule)} > 0
            QUALIFY row_number() OVER (PARTITION BY plan ORDER BY at_offset, of_key) <= {SAMPLES_PER_RULE}
            ORDER BY at_offset, of_key"""
        )
        for row in rows.to_pylist():
            # A stranger offends every plan: it is described as the first plan would.
            claim = claims[max(row["of_plan"], 0)]
            words = {**row, **_told(row, claim, rule.view)}
            sample = Sample(
                row["at_offset"],
                shown_key(row["of_key"], shown, uuids),
                rule.found.format_map(words),
                rule.expected.format_map(words),
            )
            place = (row["of_plan"], name)
            samples[place] = (*samples.get(place, ()), sample)
    return samples


def _told(row: Mapping[str, Any], claim: Claim, view: str) -> dict[str, Any]:
    """The values that a rule's templates can use besides the columns of a row."""
    of_claim = {
        "log": log_name(claim.topic, claim.partition),
        "log_end": claim.log_end_offset,
        "level_out": claim.level_out,
    }
    if view == "segments":
        since, limit_ms, limit_bytes = row["since_ms"], row["retention_ms"], row["retention_bytes"]
        age = "of unknown age" if since is None else f"from {moment(since)}"
        old = f"segments older than retention.ms = {limit_ms} at {moment(claim.now_ms)}"
        return {"age": age, "limits": f"{old}, or with retention.bytes = {limit_bytes} after them (-1: none)"}
    if view != "groups":
        return of_claim
    written, low, high = row["n_out"], row["out_min"], row["out_max"]
    there = (
        "no record of this key"
        if written == 0
        else f"only offset {high}"
        if written == 1
        else f"{written} records, offsets {low} to {high}"
    )
    read = f"only records with offsets {row['in_min']} to {row['in_max']} were read"
    return {
        **of_claim,
        "there": there,
        "written": f"{count(written, 'record')} written",
        "known_offsets": read if row["n_in"] else "nothing: the key was not read",
        "newest": "tombstone" if row["in_tombstone"] else "record",
        "reason": _why_it_stays(row, claim),
        "stamp_in": _stamp(row["in_horizon"]),
        "stamp_out": _stamp(row["out_horizon"]),
        "stamp_expected": _stamp(row["expected_horizon"]),
        "removed_tombstones": count(row["n_buried"], "record"),
    }


def _stamp(micros: int | None) -> str:
    return "no delete horizon" if micros is None else moment(micros // 1000)


def _why_it_stays(row: Mapping[str, Any], claim: Claim) -> str:
    if row["in_max"] is not None and row["in_max"] >= claim.end:
        return "it is the end of the log"
    if row["in_min"] != row["in_max"]:
        return "it must outlive the older records of its key"
    if row["in_horizon"] is None:
        return "no earlier cleaning has stamped it"
    if row["in_horizon"] > claim.now_ms * 1000:
        return f"its delete horizon is {_stamp(row['in_horizon'])}"
    return f"a segment outside the plan may hold records from offset {claim.clean_below} on"


def weight(rule: Rule) -> str:
    """SQL over a row of the rule's view: the number of violations. NULL counts as one, because nobody knows."""
    return f"coalesce(({rule.broken})::BIGINT, 1)"


Place = tuple[str, int, int]
"""Topic, partition and offset."""

_ORDER = (BEFORE, IN_PLACE, AFTER)
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


def values_of(parts: Iterable[Part], reading: JudgedColumns, places: frozenset[Place]) -> dict[Place, str | None]:
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
    """The findings, with the value of its record added to each sample."""
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


def _text(row: Mapping[str, Any], reading: JudgedColumns) -> str | None:
    """The value as text; for a table without a column `value`, all of a record except its key and place."""
    if "value" in row:
        whole = row["value"]
        return key_text(whole[:KEY_BYTES] if isinstance(whole, bytes) else whole)
    own = (*reading.key, reading.offset, reading.topic, reading.partition, reading.level, reading.delete_horizon)
    return key_text(json.dumps({name: value for name, value in row.items() if name not in own}, default=_plain))


def _plain(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
