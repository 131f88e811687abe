"""Samples of violations: the place, the finding, and the expectation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from expectations.findings import SAMPLES_PER_RULE
from expectations.promises.fate import HORIZON
from expectations.redaction import shown_key
from expectations.verdict import Sample
from expectations.wording import count, log_name, moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from expectations.claim import Claim
    from expectations.column_mapping import Reading
    from expectations.duck import Duck
    from expectations.promises.promise import Rule
    from expectations.redaction import Shown

NOBODYS = -1
"""Plan number of a stranger: a record that no claim covers."""

_PLACE = {"groups": "coalesce(in_max, out_max)", "files": "NULL::BIGINT"}
"""Offset that a sample shows, as SQL, for views without an offset column."""
_KEY = {"files": "NULL"}
_MORE = {"groups": f", {HORIZON} AS expected_horizon"}


def samples_of(
    duck: Duck,
    reading: Reading,
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
    if view != "groups":
        return of_claim
    written, low, high = row["n_out"], row["out_min"], row["out_max"]
    there = (
        "no record of this key"
        if written == 0
        else f"offset {high} only"
        if written == 1
        else f"{written} records, offsets {low} to {high}"
    )
    read = f"nothing but offsets {row['in_min']} to {row['in_max']} was read"
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
    return f"a segment outside the plan may hold older offsets, from {claim.clean_below} on"


def weight(rule: Rule) -> str:
    """SQL over a row of the rule's view: the number of violations, never NULL."""
    return f"coalesce(({rule.broken})::BIGINT, 0)"
