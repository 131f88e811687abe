"""One Spark aggregation over what the plans of a job read and wrote, which yields one small piece of evidence per plan.

First everything is summed up (see `sums`); only plans for which that does not do are compared record by record (see
`groups`), and only what offends is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from expectations.claim import BURIED, READ, WRITTEN
from expectations.groups import groups, measured
from expectations.left import LEFT_RULES, left_behind, left_offenders
from expectations.offenders import contradictions, offenders, repeated_keys
from expectations.reading import KAFKAS, Reading, narrowed, text
from expectations.rules import weights
from expectations.sums import newest, sum_up
from expectations.values import with_values

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from expectations.claim import Claim
    from expectations.shown import Shown
    from expectations.verdict import Sample


@dataclass(frozen=True, slots=True)
class Evidence:
    """Figures (counts by name), violations (counts by rule, all rules of the lane) and samples by rule."""

    figures: Mapping[str, int]
    violations: Mapping[str, int]
    samples: Mapping[str, tuple[Sample, ...]]


def comparison(inputs: DataFrame, outputs: DataFrame, reading: Reading = KAFKAS) -> DataFrame:
    """Both sides, narrowed and tagged (`side`): the batch that the expectations of a plan are run on.

    Both need the columns that `reading` names; columns for transactions are looked at where it says so.
    """
    return narrowed(inputs, READ, reading).unionByName(narrowed(outputs, WRITTEN, reading))


def collect_evidence(
    inputs: DataFrame,
    outputs: DataFrame,
    claims: Sequence[Claim],
    reading: Reading = KAFKAS,
    *,
    checksum: int | None = None,
    left: DataFrame | None = None,
    samples: Shown = "keys",
) -> list[Evidence]:
    """The evidence for each of `claims`: one Spark action where all is well, further ones for plans in doubt.

    Transactions are always looked at record by record: sums don't tell which were aborted.

    `checksum` vouches for the values that were read (see `sums`). `left` holds the records of segments that stay where
    they are. The claims are of one lane and one level out, each of a topic partition of its own. `samples` says what is
    shown of records that offend.
    """
    evidence = _collected(inputs, outputs, claims, reading, checksum, left, samples)
    if samples == "full":
        sides = [side for side in (inputs, left, outputs) if side is not None]
        shown = with_values([found.samples for found in evidence], sides, claims, reading)
        evidence = [_with(found, {}, own) for found, own in zip(evidence, shown, strict=True)]
    return evidence


def _collected(
    inputs: DataFrame,
    outputs: DataFrame,
    claims: Sequence[Claim],
    reading: Reading,
    checksum: int | None,
    left: DataFrame | None,
    samples: Shown,
) -> list[Evidence]:
    if left is None and all(claim.transactional for claim in claims):
        return examine(comparison(inputs, outputs, reading), claims, samples=samples)
    beside = () if left is None else left_behind(left, inputs, claims, reading)
    sums = sum_up(inputs, outputs, claims, reading, trusted=checksum is not None, beside=beside)
    differs = checksum is not None and checksum != sums.checksum
    doubtful = [
        number
        for number, (claim, summed) in enumerate(zip(claims, sums.plans, strict=True))
        if differs or sums.foreign or claim.transactional or not summed.sound
    ]
    evidence = [_of_sums(claim, summed.counts) for claim, summed in zip(claims, sums.plans, strict=True)]
    if doubtful:
        compared = comparison(inputs, outputs, reading)
        if len(doubtful) < len(claims):
            compared = compared.where(_about([claims[number] for number in doubtful]))
        closer = examine(compared, [claims[number] for number in doubtful], samples=samples)
        for number, found in zip(doubtful, closer, strict=True):
            evidence[number] = found
    if differs and not any(any(found.violations.values()) for found in evidence):
        # What was read just now agrees with what was written, so the cleaner has read something else.
        evidence = [_with(found, {"checksum": 1}, {}) for found in evidence]
    offending = [number for number, summed in enumerate(sums.plans) if any(summed.counts[rule] for rule in LEFT_RULES)]
    if left is not None and offending:
        shown = {} if samples == "none" else left_offenders(left, inputs, claims, reading, samples)
        for number in offending:
            broken = {rule: sums.plans[number].counts[rule] for rule in LEFT_RULES}
            evidence[number] = _with(evidence[number], broken, shown.get(number, {}))
    return evidence


def examine(compared: DataFrame, claims: Sequence[Claim], *, samples: Shown = "keys") -> list[Evidence]:
    """The evidence for each of `claims` from a `comparison`, record by record: one Spark action, and further ones only
    for samples of what offends, which show no values."""
    lane = claims[0].lane
    grouped, rules, figures = groups(compared, claims), weights(lane), measured(lane == "merge")
    sums = {f"rule_{name}": weight for name, weight in rules.items()} | figures
    totals = grouped.groupBy("plan").agg(*(F.expr(f"sum({sql})").alias(name) for name, sql in sums.items()))
    counts = {row["plan"]: {name: row[name] or 0 for name in sums} for row in totals.collect()}
    nobodys = counts.get(None, {}).get("rule_foreign", 0)
    found = []
    for number in range(len(claims)):
        of_plan = counts.get(number, dict.fromkeys(sums, 0))
        violations = {name: of_plan[f"rule_{name}"] for name in rules}
        violations["foreign"] += nobodys
        found.append(Evidence({name: of_plan[name] for name in figures}, violations, {}))
    broken = {name for evidence in found for name, number in evidence.violations.items() if number}
    if samples != "none" and broken:
        shown = offenders(grouped, broken, claims, samples)
        for number, evidence in enumerate(found):
            of_all = {"foreign": shown.get(None, {}).get("foreign", ())} if nobodys else {}
            found[number] = _with(evidence, {}, of_all | shown.get(number, {}))
    if any(evidence.figures["repeated"] for evidence in found):
        read = compared.where((F.col("side") == READ) & (F.col("level") != BURIED))
        differing = contradictions(read, samples)
        for number, claim in enumerate(claims):
            times, places = differing.get((claim.topic, claim.partition), (0, ()))
            found[number] = _with(
                found[number], {"contradiction": times}, {"contradiction": () if samples == "none" else places}
            )
    return found


def collect_plain_evidence(records: DataFrame, *, samples: Shown = "keys") -> Evidence:
    """Evidence of any table with a column `key`, without a claim: the rules `repeated_key` and `null_key`.

    Where there are columns `topic` and `partition`, a key in two topic partitions is two keys.
    """
    within = [name for name in ("topic", "partition") if name in records.columns]
    per_key = records.groupBy(*within, "key").agg(F.count(F.lit(1)).alias("records"))
    keyed = F.col("key").isNotNull()
    total = per_key.agg(
        F.sum("records").alias("records"),
        F.sum(keyed.cast("long")).alias("keys"),
        F.sum(F.when(keyed & (F.col("records") > 1), 1)).alias("repeated_key"),
        F.sum(F.when(~keyed, F.col("records"))).alias("null_key"),
    ).collect()[0]
    counts = {name: int(number or 0) for name, number in total.asDict().items()}
    found: dict[str, tuple[Sample, ...]] = {}
    if samples != "none" and counts["repeated_key"]:
        found["repeated_key"] = repeated_keys(per_key.where(keyed), samples)
    return Evidence(
        {"records_out": counts["records"], "keys_out": counts["keys"], "quarantined": 0},
        {"repeated_key": counts["repeated_key"], "null_key": counts["null_key"]},
        found,
    )


def _of_sums(claim: Claim, counts: Counter[str]) -> Evidence:
    """The evidence of a plan whose sums are sound: no rule is broken."""
    merge = claim.lane == "merge"
    figures = {name: counts[name] for name in measured(merge)}
    if merge:
        figures |= {"repeats_in": counts["repeated"], "repeated": 0}
    else:
        records = counts["keyed_in"] + counts["null_in"]
        superseded, end_in = counts["keyed_in"] - counts["keys_in"], newest(counts) == claim.log_end_offset
        figures |= {"records_in": records, "superseded": superseded, "end_in": int(end_in)}
    return Evidence(figures, dict.fromkeys(weights(claim.lane), 0), {})


def _with(evidence: Evidence, violations: Mapping[str, int], samples: Mapping[str, tuple[Sample, ...]]) -> Evidence:
    return Evidence(evidence.figures, {**evidence.violations, **violations}, {**evidence.samples, **samples})


def _about(claims: Sequence[Claim]) -> str:
    """A condition for the records that `claims` are about, by which whole files are skipped."""
    partitions: dict[str, list[int]] = {}
    for claim in claims:
        partitions.setdefault(claim.topic, []).append(claim.partition)
    return " OR ".join(
        f"(topic = {text(topic)} AND partition IN ({', '.join(map(str, numbers))}))"
        for topic, numbers in partitions.items()
    )
