"""Judge the records that plans read and wrote: DuckDB SQL, run inside one task for all of its plans at once.

The judge does not know how the cleaner works. `examine` reads the columns that the promises need (see `views`). If it
finds that a plan has broken a promise, the plan is examined again closely, with values.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing
from typing import TYPE_CHECKING, Any

from firnlake_expectations.case import COPIES, RETAIN, SAMPLES_PER_RULE, Finding, Sample, Verdict
from firnlake_expectations.duck import Duck
from firnlake_expectations.promises import FINGERPRINT, NOUNS, promises_for
from firnlake_expectations.tables import Layout, fill
from firnlake_expectations.temporary import temporary_folder
from firnlake_expectations.views import derive, derive_retention
from firnlake_expectations.wording import count, moment, shown_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from firnlake_expectations.case import Case, Claim, JudgedColumns
    from firnlake_expectations.promises import Figures, Promise, Rule
    from firnlake_expectations.wording import Shown

MEMORY_BYTES = 1 << 30
"""Memory limit of DuckDB per task, in bytes; DuckDB spills data beyond this limit to a temporary folder."""


def judge(
    cases: Sequence[Case], schema: pa.Schema, reading: JudgedColumns, *, samples: Shown = "keys", threads: int = 1
) -> list[Verdict]:
    """The verdict on the plan of each of `cases`, which share table, lane and output level, in their order.

    schema    schema of the records
    reading   the roles of their columns
    samples   how much reports show of the records that break a promise
    threads   the number of threads to read and compute with
    """

    def examined(some: Sequence[Case], shown: Shown, *, closely: bool) -> list[Verdict]:
        with temporary_folder() as folder, closing(Duck(threads, MEMORY_BYTES, folder)) as duck:
            return examine(duck, Layout(schema, reading, some, closely), shown)

    if any(case.fingerprint is None for case in cases):
        return examined(cases, samples, closely=True)
    verdicts = examined(cases, "none", closely=False)
    doubtful = [number for number, verdict in enumerate(verdicts) if not verdict.passed]
    if doubtful:
        again = examined([cases[number] for number in doubtful], samples, closely=True)
        for number, verdict in zip(doubtful, again, strict=True):
            verdicts[number] = verdict
    return verdicts


def examine(duck: Duck, layout: Layout, samples: Shown) -> list[Verdict]:
    """The verdicts on the cases of `layout`, from one run of the SQL in an empty database."""
    fill(duck, layout)
    if layout.lane == RETAIN:
        derive_retention(duck, layout)
        figures = duck.dicts(_DROPPED)
    else:
        derive(duck, layout)
        figures = list(_figures(duck, copies=layout.lane in COPIES))
    promises = promises_for(layout.lane)
    rules = dict.fromkeys(rule for promise in promises for rule in promise.rules)
    broken = _broken(duck, rules, len(layout.cases))
    for case, counted, violations in zip(layout.cases, figures, broken, strict=True):
        counted["told"] = len(case.claim.figures)
        # If the same records were read and written, but compaction has taken another fingerprint, then it must have
        # read something else.
        if FINGERPRINT in rules and not violations and case.fingerprint not in (None, counted["fingerprint"]):
            violations[FINGERPRINT] = 1
    shown = _samples(duck, layout, broken, samples)
    verdicts = []
    for case, counted, violations, examples in zip(layout.cases, figures, broken, shown, strict=True):
        findings = (_finding(promise, case.claim, counted, violations, examples) for promise in promises)
        verdicts.append(Verdict(case.claim, tuple(findings), layout.closely))
    return verdicts


def _finding(
    promise: Promise,
    claim: Claim,
    figures: Figures,
    violations: Mapping[Rule, int],
    examples: Mapping[Rule, Sequence[Sample]],
) -> Finding:
    """The finding of one `promise`. Raises KeyError if a figure is missing."""
    checked = figures[promise.checked]
    if promise.differences is None:
        broken = [rule for rule in promise.rules if rule in violations]
        number = sum(violations[rule] for rule in broken)
        said = [f"{count(violations[rule], rule.noun)} {rule.breach}" for rule in broken]
        samples = tuple(sample for rule in broken for sample in examples.get(rule, ()))
    else:
        said = promise.differences(figures, claim)
        number, samples = len(said), tuple(Sample(None, None, one) for one in said)
    if not said:
        noun = NOUNS[promise.checked]
        said = [f"0 of {count(checked, noun)}" if checked else f"no {noun} to look at"]
    note = promise.note(figures, claim) if promise.note else ""
    observed = "; ".join(filter(None, [*said, note])) + "."
    return Finding(promise.name, promise.sentence, not number, observed, samples, promise.number, checked, number)


_DROPPED = """SELECT 0 AS fingerprint, count_if(goes) AS dropped, count_if(NOT goes AND records > 0) AS staying,
    coalesce(sum(records) FILTER (goes), 0)::BIGINT AS records_in
    FROM plans LEFT JOIN segments USING (plan) GROUP BY plan ORDER BY plan"""
"""The figures of each plan of lane `retain`."""


_FIGURES = {
    "superseded": (
        "CASE WHEN role = 'key' THEN CASE WHEN n_in > 0 THEN n_in + risen::INT - 1 END WHEN n_in > 1 THEN n_in - 1 END"
    ),
    "tombstones_removed": ("(role = 'key' AND n_in > 0 AND in_tombstone AND out_max IS DISTINCT FROM in_max)::INT"),
    "aborted": "(role = 'aborted' AND n_in > 0 AND n_out = 0)::INT",
    "markers_removed": "(role = 'control' AND n_in > 0 AND n_out = 0)::INT",
    "control_in": "CASE WHEN role = 'control' THEN n_in END",
    "restored": "(role = 'key' AND n_in > 0 AND risen)::INT",
    "settled_keyed": "CASE WHEN settled AND role = 'key' THEN n_in END",
    "settled_keys": "(settled AND role = 'key' AND n_in > 0)::INT",
    "keys_in": "(role = 'key' AND n_in > 0)::INT",
    "keys_out": "(role = 'key' AND n_out > 0)::INT",
    "tombstones_in": "(role = 'key' AND n_in > 0 AND in_tombstone)::INT",
}
"""Figures that are always counted, as SQL over a row of `groups`."""


def _figures(duck: Duck, *, copies: bool) -> Iterator[dict[str, int]]:
    """The figures of each plan, in the order of the cases, and as a figure the sum of the fingerprints written."""
    sums = ", ".join(f"coalesce(sum({sql}), 0)::BIGINT AS {name}" for name, sql in _FIGURES.items())
    rows = duck.dicts(
        f"""SELECT plan, coalesce(read_sums.records, 0) AS n_read,
            coalesce(end_in, 0) AS end_in, coalesce(written.records, 0) AS records_out,
            coalesce(quarantined, 0) AS quarantined, coalesce(fingerprint, 0) AS fingerprint,
            coalesce(settled.keyed, 0) AS all_keyed, coalesce(settled.keys, 0) AS all_keys,
            coalesce(repeats.repeated, 0) AS repeated, coalesce(files, 0) AS files,
            coalesce(hidden_sums.records, 0) AS deleted, coalesce(erased.records, 0) AS erased, g.*
        FROM plans LEFT JOIN read_sums USING (plan) LEFT JOIN repeats USING (plan) LEFT JOIN erased USING (plan)
        LEFT JOIN (SELECT plan, sum(keys) AS keys, sum(keyed) AS keyed
            FROM newest ANTI JOIN unsettled USING (plan, slice) GROUP BY plan) AS settled USING (plan)
        LEFT JOIN (SELECT plan, sum(records) AS records, sum(quarantined) AS quarantined,
            sum(fingerprint) AS fingerprint FROM written_sums GROUP BY plan) AS written USING (plan)
        LEFT JOIN (SELECT plan, count(*) AS files FROM files GROUP BY plan) USING (plan)
        LEFT JOIN (SELECT plan, sum(records) AS records FROM hidden GROUP BY plan) AS hidden_sums USING (plan)
        LEFT JOIN (SELECT plan AS of_groups, {sums} FROM groups GROUP BY plan) AS g ON plan = of_groups ORDER BY plan"""
    )
    for row in rows:
        counts = {name: int(row[name] or 0) for name in _FIGURES}
        # In a settled slice the keys that need no comparison have one record each, the newest.
        keyed, keys = counts.pop("settled_keyed"), counts.pop("settled_keys")
        others = 0 if copies else int(row["all_keys"]) - keys
        older = 0 if copies else int(row["all_keyed"]) - keyed - others
        yield {
            **counts,
            "erased": row["erased"],
            "records_in": row["n_read"] + row["erased"] + counts["restored"],
            "records_out": int(row["records_out"]),
            "superseded": 0 if copies else counts["superseded"] + older,
            "quarantined": 0 if copies else int(row["quarantined"]),
            "keys_in": counts["keys_in"] + others,
            "keys_out": counts["keys_out"] + others,
            "end_in": row["end_in"],
            "files": row["files"],
            "deleted": int(row["deleted"]),
            # Lanes that copy keep records that landed twice.
            "repeated": 0 if copies else row["repeated"],
            "fingerprint": int(row["fingerprint"]),
        }


def _broken(duck: Duck, rules: Iterable[Rule], plans: int) -> list[dict[Rule, int]]:
    """The rules that each plan has broken, with the number of violations."""
    by_view: dict[str, list[Rule]] = defaultdict(list)
    for rule in rules:
        if rule.view:
            by_view[rule.view].append(rule)
    broken: list[dict[Rule, int]] = [{} for _ in range(plans)]
    for view, some in by_view.items():
        sums = ", ".join(f"sum({_weight(rule)})" for rule in some)
        for plan, *numbers in duck.rows(f"SELECT plan, {sums} FROM {view} GROUP BY plan"):
            broken[plan] |= {rule: int(number) for rule, number in zip(some, numbers, strict=True) if number}
    return broken


_PLACE = {"groups": "coalesce(in_max, out_max)", "files": "NULL::BIGINT"}
"""Offset that a sample shows, as SQL, for views without an offset column."""


def _samples(
    duck: Duck, layout: Layout, broken: Sequence[Mapping[Rule, int]], shown: Shown
) -> list[dict[Rule, list[Sample]]]:
    """For each plan, up to SAMPLES_PER_RULE samples of each broken rule, lowest offsets first."""
    samples: list[dict[Rule, list[Sample]]] = [defaultdict(list) for _ in broken]
    uuids = tuple(name in layout.reading.uuids for name in layout.reading.key)
    for rule in dict.fromkeys(rule for rules in broken for rule in rules if rule.view and shown != "none"):
        offset, key = _PLACE.get(rule.view, '"offset"'), "NULL" if rule.view == "files" else "key"
        rows = duck.table(
            f"""SELECT *, {offset} AS at_offset, {key} AS of_key FROM {rule.view} WHERE {_weight(rule)} > 0
            QUALIFY row_number() OVER (PARTITION BY plan ORDER BY at_offset, of_key) <= {SAMPLES_PER_RULE}
            ORDER BY at_offset, of_key"""
        )
        for row in rows.to_pylist():
            found = rule.found.format_map(row | _told(row, layout.cases[row["plan"]].claim, rule.view))
            sample = Sample(row["at_offset"], shown_key(row["of_key"], shown, uuids), found)
            samples[row["plan"]][rule].append(sample)
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


def _weight(rule: Rule) -> str:
    """SQL over a row of the rule's view: the number of violations. NULL counts as one, because nobody knows."""
    return f"coalesce(({rule.broken})::BIGINT, 1)"
