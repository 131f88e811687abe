"""One Spark aggregation over what a plan read and wrote, which yields one small row of evidence.

It is derived from the contract alone, without a look at how the cleaner works: both sides are narrowed to key,
offset, tombstone, horizon, level and a fingerprint, grouped by key once, and summed up once. Values are hashed
where they are read and never shuffled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from expectations.claim import BURIED, QUARANTINED, READ, WRITTEN, Claim
from expectations.offenders import contradictions, offenders, repeated_keys
from expectations.reading import KAFKAS, Reading, narrowed
from expectations.rules import weights
from expectations.transactions import with_marks

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def collect_evidence(compared: DataFrame, claim: Claim, *, samples: bool = True) -> Evidence:
    """The evidence for `claim` from a `comparison`: one Spark action, and further ones only for samples of
    what offends (when `samples`)."""
    groups = _groups(compared, claim)
    total = groups.agg(
        *(F.sum(weight).alias(f"rule_{name}") for name, weight in weights(claim).items()),
        *(F.sum(figure).alias(name) for name, figure in _figures(claim).items()),
    ).collect()[0]
    counts = {name: int(number or 0) for name, number in total.asDict().items()}
    violations = {name: counts[f"rule_{name}"] for name in weights(claim)}
    broken = {name for name, number in violations.items() if number}
    found = offenders(groups, broken, claim) if samples and broken else {}
    violations["contradiction"] = 0
    if counts["repeated"]:
        number, shown = contradictions(compared.where((F.col("side") == READ) & (F.col("level") != BURIED)))
        violations["contradiction"] = number
        found["contradiction"] = shown if samples else ()
    return Evidence({name: counts[name] for name in _figures(claim)}, violations, found)


def collect_plain_evidence(records: DataFrame, *, samples: bool = True) -> Evidence:
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
    if samples and counts["repeated_key"]:
        found["repeated_key"] = repeated_keys(per_key.where(keyed))
    return Evidence(
        {"records_out": counts["records"], "keys_out": counts["keys"], "quarantined": 0},
        {"repeated_key": counts["repeated_key"], "null_key": counts["null_key"]},
        found,
    )


def _groups(compared: DataFrame, claim: Claim) -> DataFrame:
    """One row per group. What makes a group depends on the `role`:

    key    a record that a cleaning judges by its key: all records of a key, in `key`
    copy   a record that must come out as it went in (all of a merge; those without a key): those with the
           same offset in `slot` and the same fingerprint in `mark`
    aborted, control
           a record of an aborted transaction, a control record: like a copy, whatever its key
    word   64 neighbouring offsets that were read, numbered in `slot`, as a bitmap in `bits`: what finds
           an offset that occurs twice even under two keys

    Tombstones that were removed earlier (read at level BURIED) count where one is newer than all that was read of its
    key, and something was: it has `risen`, and is the newest record of the key.
    All aggregates have fixed-size buffers, so that Spark hashes (and combines before the shuffle), never sorts.
    """
    topic = F.col("level") != BURIED
    read, written = (F.col("side") == READ) & topic, (F.col("side") == WRITTEN) & topic
    removed_before, removed_now = (F.col("side") == READ) & ~topic, (F.col("side") == WRITTEN) & ~topic
    records = _with_roles(compared, claim)
    offset_read, offset_written = F.when(read, F.col("offset")), F.when(written, F.col("offset"))
    offset_before, offset_now = F.when(removed_before, F.col("offset")), F.when(removed_now, F.col("offset"))
    # A stamp counts only where Firn itself wrote it: levels 0 and 1 come from any writer.
    stamped = read & (F.col("level") >= 2) & F.col("horizon").isNotNull()
    at_end = F.col("offset") == claim.log_end_offset
    groups = records.groupBy("role", "key", "slot", "mark").agg(
        F.count(F.when(read, 1)).alias("n_in"),
        F.count(F.when(written, 1)).alias("n_out"),
        F.max(offset_read).alias("read_max"),
        F.min(offset_read).alias("in_min"),
        F.max(offset_written).alias("out_max"),
        F.min(offset_written).alias("out_min"),
        F.max_by("tombstone", offset_read).alias("read_tombstone"),
        F.max_by("fingerprint", offset_read).alias("read_fingerprint"),
        F.max(F.when(stamped, F.col("offset"))).alias("stamped_max"),
        F.max_by("horizon", F.when(stamped, F.col("offset"))).alias("stamped_horizon"),
        F.max(offset_before).alias("before_max"),
        F.max_by("fingerprint", offset_before).alias("before_fingerprint"),
        F.max_by("fingerprint", offset_written).alias("out_fingerprint"),
        F.max_by("horizon", offset_written).alias("out_horizon"),
        F.count(F.when(removed_now, 1)).alias("n_buried"),
        F.max_by("fingerprint", offset_now).alias("buried_fingerprint"),
        F.count(F.when(read & F.col("tombstone"), 1)).alias("tombstones_in"),
        F.count(F.when(written & F.col("tombstone"), 1)).alias("tombstones_out"),
        F.count(F.when(written & (F.col("level") == QUARANTINED), 1)).alias("n_quarantined"),
        F.count(F.when(written & (F.col("level") != F.col("level_expected")), 1)).alias("n_level"),
        F.max(F.when(written & (F.col("level") != F.col("level_expected")), F.col("level"))).alias("a_level"),
        F.count(F.when(F.col("foreign"), 1)).alias("n_foreign"),
        F.max("ended").alias("ended"),
        F.count(F.when(read & F.col("undecided"), 1)).alias("n_undecided"),
        F.count(F.when(read & F.col("transaction"), 1)).alias("n_transaction"),
        F.count(F.when(read & at_end, 1)).alias("end_in"),
        F.count(F.when(written & (F.col("level") != QUARANTINED) & at_end, 1)).alias("end_out"),
        F.bit_or("bit").alias("bits"),
    )
    return _with_newest(groups)


def _with_newest(groups: DataFrame) -> DataFrame:
    """What is known of the newest record of each key, `in_…`: read in the topic, or a tombstone that has risen."""
    risen = F.coalesce(F.col("before_max") > F.col("read_max"), F.lit(False))

    def newest(of_risen: Column, of_read: Column) -> Column:
        return F.when(F.col("risen"), of_risen).otherwise(of_read)

    return groups.withColumn("risen", risen).select(
        "*",
        newest(F.col("before_max"), F.col("read_max")).alias("in_max"),
        newest(F.lit(True), F.col("read_tombstone")).alias("in_tombstone"),
        newest(F.col("before_fingerprint"), F.col("read_fingerprint")).alias("in_fingerprint"),
        F.when(~F.col("risen") & (F.col("stamped_max") == F.col("read_max")), F.col("stamped_horizon")).alias(
            "in_horizon"
        ),
    )


def _with_roles(compared: DataFrame, claim: Claim) -> DataFrame:
    merge = claim.lane == "merge"
    without_key = F.lit(True) if merge else F.col("key").isNull()
    role = F.when(without_key, "copy").otherwise("key")
    if not merge:
        role = F.when(F.col("aborted"), "aborted").when(F.col("control"), "control").otherwise(role)
    copied, quarantined = role != "key", (role == "copy") & F.lit(not merge)
    mark = F.xxhash64("fingerprint", "horizon", F.col("horizon").isNull()) if merge else F.col("fingerprint")
    ours = (F.col("topic") == claim.topic) & (F.col("partition") == claim.partition)
    no_key, no_number = F.lit(None).cast(compared.schema["key"].dataType), F.lit(None).cast("bigint")
    records = with_marks(compared, claim).select(
        "side",
        "offset",
        "tombstone",
        "horizon",
        "level",
        "fingerprint",
        "ended",
        "undecided",
        (F.col("control") | F.col("transactional")).alias("transaction"),
        role.alias("role"),
        F.when(copied, no_key).otherwise(F.col("key")).alias("key"),
        F.when(copied, F.col("offset")).alias("slot"),
        F.when(copied, mark).alias("mark"),
        # The end of the log stays in the topic even without a key (C4); it is quarantined once it is no longer the end.
        F.when(quarantined & (F.col("offset") != claim.log_end_offset), QUARANTINED)
        .otherwise(claim.level_out)
        .alias("level_expected"),
        (~F.coalesce(ours, F.lit(False)) | F.col("offset").isNull()).alias("foreign"),
        no_number.alias("bit"),
    )
    if merge:  # a copy keeps what was landed twice, too (C13)
        return records
    words = compared.where((F.col("side") == READ) & (F.col("level") != BURIED) & F.col("offset").isNotNull()).select(
        "side",
        "level",
        F.lit("word").alias("role"),
        no_key.alias("key"),
        F.shiftright("offset", 6).alias("slot"),
        no_number.alias("mark"),
        F.call_function("shiftleft", F.lit(1).cast("bigint"), F.col("offset").bitwiseAND(63).cast("int")).alias("bit"),
    )
    return records.unionByName(words, allowMissingColumns=True)


def _figures(claim: Claim) -> dict[str, Column]:
    """What is counted whether or not a rule is broken: one column per figure, to be summed over all groups."""
    keyed, record = F.col("role") == "key", F.col("role") != "word"
    known = keyed & (F.col("n_in") > 0)
    gone = F.col("in_tombstone") & ~F.col("out_max").eqNullSafe(F.col("in_max"))
    risen = F.col("risen").cast("long")
    # In a cleaning, a copy of a record without a key goes like any other copy; a merge keeps them all (C13).
    copies = ~F.col("role").isin("key", "word") & (F.col("n_in") > 1) & F.lit(claim.lane != "merge")
    vanished = (F.col("n_in") > 0) & (F.col("n_out") == 0)
    control = F.col("role") == "control"

    def of(condition: Column, number: Column) -> Column:
        return F.when(condition, number).otherwise(0)

    return {
        "records_in": of(record, F.col("n_in") + risen),
        "records_out": of(record, F.col("n_out") - F.col("n_quarantined")),
        "superseded": of(known, F.col("n_in") + risen - 1) + of(copies, F.col("n_in") - 1),
        "tombstones_removed": of(known & gone, F.lit(1)),
        "quarantined": of(record, F.col("n_quarantined")),
        "aborted": of((F.col("role") == "aborted") & vanished, F.lit(1)),
        "markers_removed": of(control & vanished, F.lit(1)),
        "control_in": of(control, F.col("n_in")),
        "repeated": of(F.col("role") == "word", F.col("n_in") - F.bit_count("bits")),
        "restored": of(known, risen),
        "keys_in": of(known, F.lit(1)),
        "keys_out": of(keyed & (F.col("n_out") > 0), F.lit(1)),
        "tombstones_in": of(record, F.col("tombstones_in")),
        "tombstones_out": of(record, F.col("tombstones_out")),
        "end_in": of(record, F.col("end_in")),
        "repeats_in": of((F.col("role") == "copy") & (F.col("n_in") > 1), F.col("n_in") - 1),
    }
