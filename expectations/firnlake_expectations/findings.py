"""Findings about a plan: figures, the number of violations per rule, and samples of the violations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from firnlake_expectations.claim import Finding, Sample
from firnlake_expectations.promises.promise import HORIZON, NOUNS
from firnlake_expectations.promises.table import FINGERPRINT, promises_for
from firnlake_expectations.wording import moment, none_of, shown_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from firnlake_expectations.claim import Claim, JudgedColumns
    from firnlake_expectations.duck import Duck
    from firnlake_expectations.promises.promise import Promise, Rule
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


def of_promises(claim: Claim, findings: Findings) -> tuple[Finding, ...]:
    """The finding about each promise of the plan of `claim`. Raises KeyError if a figure is missing."""
    return tuple(_of_promise(promise, claim, findings) for promise in promises_for(claim.lane))


def _of_promise(promise: Promise, claim: Claim, findings: Findings) -> Finding:
    checked = findings.figures[promise.checked]
    if promise.differences is None:
        broken = {rule: findings.violations[rule.name] for rule in promise.rules}
        samples = tuple(chain.from_iterable(findings.samples.get(rule.name, ()) for rule in promise.rules))
        number, said = sum(broken.values()), "; ".join(rule.say(times) for rule, times in broken.items() if times)
    else:
        samples = promise.differences(findings.figures, claim)
        number, said = len(samples), "; ".join(sample.found for sample in samples)
    told = said or none_of(checked, NOUNS[promise.checked])
    note = promise.note(findings.figures, claim) if promise.note else ""
    observed = "; ".join(filter(None, (told, note))) + "."
    return Finding(promise.name, promise.sentence, not number, observed, samples, promise.number, checked, number)


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
            f"""SELECT *, {offset} AS at_offset, {key} AS of_key
            {_MORE.get(rule.view, "")} FROM {rule.view} WHERE {weight(rule)} > 0
            QUALIFY row_number() OVER (PARTITION BY plan ORDER BY at_offset, of_key) <= {SAMPLES_PER_RULE}
            ORDER BY at_offset, of_key"""
        )
        for row in rows.to_pylist():
            words = {**row, **_told(row, claims[row["plan"]], rule.view)}
            sample = Sample(
                row["at_offset"],
                shown_key(row["of_key"], shown, uuids),
                rule.found.format_map(words),
            )
            place = (row["plan"], name)
            samples[place] = (*samples.get(place, ()), sample)
    return samples


def _told(row: Mapping[str, Any], claim: Claim, view: str) -> dict[str, Any]:
    """The values that a rule's templates can use besides the columns of a row."""
    if view == "segments":
        since, limits = row["since_ms"], (row["retention_ms"], row["retention_bytes"])
        age = "of unknown age" if since is None else f"from {moment(since)}"
        return {"age": age, "limits": "retention.ms = {}, retention.bytes = {} (-1: none)".format(*limits)}
    if view != "groups":
        return {"log": claim.log, "level_out": claim.level_out}
    written = row["n_out"]
    return {
        "level_out": claim.level_out,
        "there": f"{written:,} there, offsets {row['out_min']} to {row['out_max']}" if written else "not there",
        "stamp_in": _stamp(row["in_horizon"]),
        "stamp_out": _stamp(row["out_horizon"]),
        "stamp_expected": _stamp(row["expected_horizon"]),
    }


def _stamp(micros: int | None) -> str:
    return "no delete horizon" if micros is None else moment(micros // 1000)


def weight(rule: Rule) -> str:
    """SQL over a row of the rule's view: the number of violations. NULL counts as one, because nobody knows."""
    return f"coalesce(({rule.broken})::BIGINT, 1)"
