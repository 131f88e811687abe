"""Judge the records that plans read and wrote: DuckDB SQL, run inside one task for all of its plans at once.

The judge does not know how the cleaner works. `examine` reads the columns that the promises need (see `views`). If it
finds a violation in a plan, the plan is examined again closely, with values.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from firnlake_expectations.duck import DEFAULTS, Duck, Limits
from firnlake_expectations.findings import Findings, samples_of, weight
from firnlake_expectations.promises.promise import CONVERT, COPIES
from firnlake_expectations.promises.table import promises_for
from firnlake_expectations.tables import Filler, Layout, Part
from firnlake_expectations.views import derive, derive_retention, start

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from firnlake_expectations.claim import Claim, JudgedColumns
    from firnlake_expectations.promises.promise import Rule
    from firnlake_expectations.tables import Requested, Retained
    from firnlake_expectations.wording import Shown


def judge(
    parts: Sequence[Part],
    schema: pa.Schema,
    claims: Sequence[Claim],
    reading: JudgedColumns,
    *,
    fingerprints: Sequence[int] | None = None,
    samples: Shown = "keys",
    bounds: Limits = DEFAULTS,
    requested: Requested | None = None,
    segments: Sequence[Sequence[Retained]] = (),
) -> list[Findings]:
    """The findings about the plan of each of `claims`, which share table, lane and output level.

    parts          everything that the plans have read and written, each with the number of its plan
    schema         schema of the records
    fingerprints   sums of `Fingerprint` over the records that each plan keeps, taken when compaction read them; then
                   only the values written are read. None: values of both sides are compared
    samples        how much reports show of the records that break a promise
    requested      lane `erase`: the requests that the plans serve
    segments       lane `retain`: the segments of each plan's topic partition
    """
    same_files = claims[0].lane == CONVERT
    layout = Layout(
        schema, reading, closely=fingerprints is None, requested=requested, same_files=same_files, segments=segments
    )
    if fingerprints is None:
        return examine(parts, layout, claims, samples, bounds)
    findings = examine(parts, layout, claims, "none", bounds)
    doubtful = doubted(findings, fingerprints)
    if doubtful:
        own = [part for part in parts if part.plan in doubtful]
        closely = examine(own, replace(layout, closely=True), claims, samples, bounds)
        for number in doubtful:
            findings[number] = closely[number].differs(fingerprints[number])
    return findings


def doubted(findings: Sequence[Findings], fingerprints: Sequence[int]) -> list[int]:
    """Indices of the plans to examine closely: those with a violation or a different fingerprint."""
    return [
        number
        for number, (one, fingerprint) in enumerate(zip(findings, fingerprints, strict=True))
        if one.broken or one.fingerprint != fingerprint
    ]


def examine(
    parts: Sequence[Part],
    layout: Layout,
    claims: Sequence[Claim],
    samples: Shown,
    bounds: Limits,
    *,
    settle: bool = True,
) -> list[Findings]:
    """The findings about each of `claims`, from one run of the SQL. Without `settle`, every record is compared."""
    duck = Duck(bounds)
    try:
        layout.make(duck)
        Filler(duck, layout, claims).fill(parts, bounds.threads)
        return _findings(duck, layout, claims, samples, settle=settle)
    finally:
        duck.close()


def _findings(duck: Duck, layout: Layout, claims: Sequence[Claim], samples: Shown, *, settle: bool) -> list[Findings]:
    """The findings from filled tables."""
    compares = True
    if layout.segments:
        start(duck, layout, claims)
        figures, fingerprints = derive_retention(duck, layout.segments), dict.fromkeys(range(len(claims)), 0)
    else:
        compares = derive(duck, layout, claims, settle=settle)
        figures, fingerprints = _figures(duck, copies=claims[0].lane in COPIES, compares=compares)
    # Rules that several promises of a lane share have one name.
    every = {rule.name: rule for promise in promises_for(claims[0].lane) for rule in promise.rules}
    absent = () if compares else ("groups", "levels")
    rules = {name: rule for name, rule in every.items() if rule.view not in absent}
    broken = _broken(duck, rules.values())
    shown = samples_of(duck, layout.reading, claims, rules, broken, samples) if samples != "none" else {}
    findings = []
    for number, claim in enumerate(claims):
        figures[number]["told"] = len(claim.figures)
        findings.append(
            Findings(
                figures[number],
                {name: broken.get((number, name), 0) for name in every},
                {name: shown[number, name] for name in every if (number, name) in shown},
                fingerprints[number],
                layout.closely,
            )
        )
    return findings


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


def _figures(duck: Duck, *, copies: bool, compares: bool) -> tuple[dict[int, dict[str, int]], dict[int, int]]:
    """The figures of each plan, and the sums of the fingerprints written."""
    sums = ", ".join(f"coalesce(sum({sql}), 0)::BIGINT AS {name}" for name, sql in _FIGURES.items())
    counted = f"SELECT plan AS of_groups, {sums} FROM groups GROUP BY plan"
    if not compares:
        counted = f"SELECT NULL::INTEGER AS of_groups, {', '.join(f'0 AS {name}' for name in _FIGURES)}"
    figures: dict[int, dict[str, int]] = {}
    fingerprints: dict[int, int] = {}
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
        LEFT JOIN ({counted}) AS g ON plan = of_groups"""
    )
    for row in rows:
        counts = {name: int(row[name] or 0) for name in _FIGURES}
        # In a settled slice the keys that need no comparison have one record each, the newest.
        keyed, keys = counts.pop("settled_keyed"), counts.pop("settled_keys")
        others = 0 if copies else int(row["all_keys"]) - keys
        older = 0 if copies else int(row["all_keyed"]) - keyed - others
        repeated = row["repeated"]
        figures[row["plan"]] = {
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
            "repeated": 0 if copies else repeated,
        }
        fingerprints[row["plan"]] = int(row["fingerprint"])
    return figures, fingerprints


def _broken(duck: Duck, rules: Iterable[Rule]) -> dict[tuple[int, str], int]:
    """Number of violations by plan and rule."""
    counts: dict[tuple[int, str], int] = {}
    for view, own in _by_view(rules).items():
        sums = ", ".join(f"sum({weight(rule)}) AS {rule.name}" for rule in own)
        for row in duck.dicts(f"SELECT plan, {sums} FROM {view} GROUP BY plan"):
            for rule in own:
                if row[rule.name]:
                    counts[row["plan"], rule.name] = int(row[rule.name])
    return counts


def _by_view(rules: Iterable[Rule]) -> dict[str, list[Rule]]:
    by_view: dict[str, list[Rule]] = {}
    for rule in rules:
        if rule.view is not None:
            by_view.setdefault(rule.view, []).append(rule)
    return by_view
