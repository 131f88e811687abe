"""What must come out and what came out, each summed up: one look at many plans that compares without moving records.

From what was read follows which records must be written. The sum of their fingerprints must be that of the records that
were written, whatever the order; what a cleaning sets in a record (level, delete horizon) is looked at beside it. Only
key, offset and what tells a tombstone's fate are shuffled, of what was read and of the tombstones written. Where the
sums differ, or a case is rare (an offset written twice, a tombstone that came back, transactions), `groups` compares
record by record.

**With a checksum**, the sum of the fingerprints of the records of the whole job as the cleaner read them, values are
read only where they were written. Why that is proof enough:

1. Key and offset of the newest record of every key follow from what was read, here. They sum up to the keys and offsets
   that were written, so exactly those records are there (offsets are counted to be distinct).
2. The fingerprints written, over every column that C1 keeps, sum up to those that the cleaner took as it read. So each
   record holds what the cleaner read at its offset.
3. Whether the newest record of a key is a tombstone is told by the record itself, since every one of them is written
   somewhere: to the topic, to the quarantine, or beside the topic.

What would slip through: a value that was read wrongly before the cleaner took its fingerprint (by a fault of the
Parquet reader or of memory), because nobody reads it a second time; a cleaner that takes fingerprints of something else
than what it read; and errors whose 64-bit hashes cancel out, by chance 1 in 2^64. Without a checksum both sides are
hashed here, and nothing of that has to be believed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from expectations.claim import BURIED, QUARANTINED
from expectations.figures import with_figures
from expectations.groups import words
from expectations.reading import fingerprint, is_tombstone, places
from expectations.rules import REMOVABLE, STAMPED
from expectations.transactions import attributes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from expectations.claim import Claim
    from expectations.reading import Reading

WITHIN = ("topic", "partition")
_OF_TOMBSTONE = ("tombstone_key", "n_out", "out_max", "out_horizon", "out_level")
_LAST = "null_kept_at"
_ASIDE = f"level IN ({QUARANTINED}, {BURIED})"


@dataclass(frozen=True, slots=True)
class Summed:
    """What the records of one plan sum up to: counts by name, and whether they are sound. If not, it takes a closer
    look to tell what is wrong, if anything is."""

    counts: Counter[str]
    sound: bool


@dataclass(frozen=True, slots=True)
class Sums:
    """By plan, in the order of the claims; `foreign`: there are records that no claim is about; the sum of all
    fingerprints written."""

    plans: tuple[Summed, ...]
    foreign: bool
    checksum: int


def sum_up(
    inputs: DataFrame,
    outputs: DataFrame,
    claims: Sequence[Claim],
    reading: Reading,
    *,
    trusted: bool,
    beside: Sequence[DataFrame] = (),
) -> Sums:
    """What the records of `claims` sum up to, in one Spark action.

    `trusted`: a checksum vouches for the values, so those of `inputs` are not read. `beside`: what else is to be summed
    up, as rows of topic, partition and counts.
    """
    columns = inputs.columns if reading.transactions else ()
    flags = attributes(columns)
    read = inputs.select(
        *(F.expr(sql) for sql in places(reading)),
        F.expr(f"{flags['control']} OR {flags['transactional']}").alias("transaction"),
        *([] if trusted else [fingerprint(inputs, reading).alias("fingerprint")]),
    )
    written = outputs.select(
        *(F.expr(sql) for sql in places(reading)),
        F.expr(is_tombstone(reading)).alias("tombstone"),
        fingerprint(outputs, reading).alias("fingerprint"),
    )
    if claims[0].lane == "merge":
        rows = _all(_copied(read, written, claims, trusted), *beside).collect()
    else:
        # Two look at it, and it is the only one that holds values: read once.
        outcome = _outcome(written, claims[0].level_out, trusted).persist()
        try:
            rows = _all(_cleaned(read, outcome, claims, trusted), *beside).collect()
        finally:
            outcome.unpersist()
    found: dict[tuple[str, int], Counter[str]] = {}
    for row in rows:
        counts = {
            name: int(number) for name, number in row.asDict().items() if name not in WITHIN and number is not None
        }
        found.setdefault((row["topic"], row["partition"]), Counter()).update(counts)
    ours = [found.pop((claim.topic, claim.partition), Counter()) for claim in claims]
    checksum = sum(_whole(counts, "fingerprint") for counts in (*ours, *found.values()))
    plans = (
        Summed(counts, _copy_is_sound(counts) if claim.lane == "merge" else _cleaning_is_sound(counts, claim))
        for counts, claim in zip(ours, claims, strict=True)
    )
    return Sums(tuple(plans), bool(found), checksum)


def _copied(read: DataFrame, written: DataFrame, claims: Sequence[Claim], trusted: bool) -> DataFrame:
    """A merge: every record read is to be written, with its delete horizon (C13)."""
    mark = "key IS NULL, key, offset" if trusted else "fingerprint"
    mark = f"xxhash64({mark}, horizon IS NULL, horizon)"
    copies = _per_plan(read, records_in="count(1)", **_halves("read", mark))
    return _all(
        copies,
        _repeats(read),
        _per_plan(
            written,
            records_out="count(1)",
            misplaced=f"count_if(level != {claims[0].level_out} OR offset IS NULL)",
            **_halves("written", mark),
            **_halves("fingerprint", "fingerprint"),
        ),
    )


def _copy_is_sound(counts: Counter[str]) -> bool:
    return (
        counts["records_in"] == counts["records_out"]
        and _whole(counts, "read") == _whole(counts, "written")
        and not counts["misplaced"]
        and not counts["nowhere"]
    )


def _cleaned(read: DataFrame, outcome: DataFrame, claims: Sequence[Claim], trusted: bool) -> DataFrame:
    """A cleaning: the newest record of every key, and every record without a key, is to be written."""
    in_topic = read.where(f"level != {BURIED}")
    sums = {name: f"sum({name})" for name in outcome.columns if name not in (*WITHIN, *_OF_TOMBSTONE, _LAST)}
    return _all(
        _newest(read, outcome, claims, trusted),
        _per_plan(
            in_topic.where("key IS NULL"),
            null_in="count(1)",
            null_newest="max(offset)",
            **_halves("read", _mark(trusted)),
        ),
        _repeats(in_topic),
        _per_plan(outcome, **sums, **{_LAST: f"max({_LAST})"}),
    )


def _outcome(written: DataFrame, level_out: int, trusted: bool) -> DataFrame:
    """What was written of each plan, summed up, and apart from the rest for the key of every tombstone: `_OF_TOMBSTONE`
    tell where those are.
    """
    key = f"if(key IS NOT NULL AND (tombstone OR level = {BURIED}), key, NULL) AS tombstone_key"
    return (
        written.selectExpr("*", key)
        .groupBy(*WITHIN, "tombstone_key")
        .agg(
            *_named(
                {
                    "n_out": "count(offset)",
                    "out_max": "max(offset)",
                    "out_horizon": "max(horizon)",
                    "out_level": "max(level)",
                    "records_out": f"count_if(NOT {_ASIDE})",
                    "quarantined": f"count_if(level = {QUARANTINED})",
                    "tombstones_removed": f"count_if(level = {BURIED})",
                    "keys_out": f"count_if(key IS NOT NULL AND NOT {_ASIDE})",
                    "tombstones_in": "count_if(key IS NOT NULL AND tombstone)",
                    "tombstones_out": f"count_if(key IS NOT NULL AND tombstone AND NOT {_ASIDE})",
                    "null_kept": "count_if(key IS NULL AND level >= 0)",
                    _LAST: "max(if(key IS NULL AND level >= 0, offset, NULL))",
                    "misplaced": (
                        "count_if(CASE WHEN offset IS NULL THEN true "
                        f"WHEN key IS NULL THEN level NOT IN ({QUARANTINED}, {level_out}) "
                        f"WHEN tombstone THEN level NOT IN ({BURIED}, {level_out}) "
                        f"ELSE level != {level_out} OR horizon IS NOT NULL END)"
                    ),
                    **_halves("written", _mark(trusted)),
                    **_halves("fingerprint", "fingerprint"),
                }
            )
        )
    )


def _mark(trusted: bool) -> str:
    """What records are told apart by: with a checksum, their place is enough."""
    return "xxhash64(key, offset)" if trusted else "fingerprint"


def _newest(read: DataFrame, outcome: DataFrame, claims: Sequence[Claim], trusted: bool) -> DataFrame:
    """The newest record read of every key, and what became of it where it is a tombstone."""
    no_number = "cast(NULL AS bigint)"
    here = read.where("key IS NOT NULL").selectExpr(
        *WITHIN,
        "key",
        f"if(level != {BURIED}, offset, NULL) AS offset",
        f"if(level = {BURIED}, offset, NULL) AS before",
        # A stamp counts only where Firn itself wrote it: levels 0 and 1 come from any writer.
        "if(level >= 2, horizon, NULL) AS horizon",
        *(() if trusted else ("fingerprint",)),
        *(f"{no_number} AS {name}" for name in ("n_out", "out_max", "out_horizon")),
        "cast(NULL AS int) AS out_level",
    )
    there = outcome.where("tombstone_key IS NOT NULL").selectExpr(
        *WITHIN,
        "tombstone_key AS key",
        *(f"{no_number} AS {name}" for name in ("offset", "before", "horizon")),
        *(() if trusted else (f"{no_number} AS fingerprint",)),
        *_OF_TOMBSTONE[1:],
    )
    aggregates = {
        "n_in": "count(offset)",
        "in_max": "max(offset)",
        "in_min": "min(offset)",
        "in_horizon": "max_by(horizon, offset)",
        "before_max": "max(before)",
        "n_out": "coalesce(sum(n_out), 0)",
        "out_max": "max(out_max)",
        "out_horizon": "max(out_horizon)",
        "out_level": "max(out_level)",
        **({} if trusted else {"fingerprint": "max_by(fingerprint, offset)"}),
    }
    keys = here.unionAll(there).groupBy(*WITHIN, "key").agg(*_named(aggregates))
    judged = with_figures(keys, claims, "now", "stamp", "clean_below", "log_end").selectExpr(
        "*", "n_out > 0 AS in_tombstone"
    )
    wrong = (
        f"CASE WHEN n_out = 0 THEN false WHEN n_out > 1 OR n_in = 0 OR out_max != in_max THEN true "
        f"WHEN {REMOVABLE} THEN out_level != {BURIED} "
        f"ELSE out_level != {claims[0].level_out} OR NOT out_horizon <=> ({STAMPED}) END"
    )
    return _per_plan(
        judged,
        keyed_in="sum(n_in)",
        keys_in="count_if(n_in > 0)",
        newest="max(in_max)",
        risen="count_if(before_max > in_max)",
        wrong=f"count_if({wrong})",
        **_halves("read", "if(n_in > 0, xxhash64(key, in_max), NULL)" if trusted else "fingerprint"),
    )


def newest(counts: Mapping[str, int]) -> int | None:
    """The highest offset read of a plan; None where nothing was."""
    return max((counts[name] for name in ("newest", "null_newest") if name in counts), default=None)


def _cleaning_is_sound(counts: Counter[str], claim: Claim) -> bool:
    last = newest(counts)
    # The end of the log stays in the topic even without a key (C4).
    end_without_key = int("null_newest" in counts and counts["null_newest"] == claim.log_end_offset)
    written = counts["records_out"] + counts["quarantined"] + counts["tombstones_removed"]
    return (
        counts["keys_in"] + counts["null_in"] == written
        and _whole(counts, "read") == _whole(counts, "written")
        and (last is None or last <= claim.log_end_offset)
        and counts["null_kept"] == end_without_key
        and counts["null_kept_at"] == end_without_key * claim.log_end_offset
        and not any(counts[name] for name in ("wrong", "misplaced", "nowhere", "repeated", "risen", "transactions"))
    )


def _repeats(read: DataFrame) -> DataFrame:
    """How many records have the offset of another one, no offset, or a part in a transaction."""
    within = words(read).groupBy(*WITHIN, "slot")
    counted = within.agg(*_named({"n": "count(1)", "bits": "bit_or(bit)", "transactions": "count_if(transaction)"}))
    return _per_plan(
        counted,
        repeated="sum(if(slot IS NULL, 0L, n - bit_count(bits)))",
        nowhere="sum(if(slot IS NULL, n, 0L))",
        transactions="sum(transactions)",
    )


def _per_plan(rows: DataFrame, **aggregates: str) -> DataFrame:
    return rows.groupBy(*WITHIN).agg(*_named(aggregates))


def _named(aggregates: Mapping[str, str]) -> list[Column]:
    return [F.expr(sql).alias(name) for name, sql in aggregates.items()]


def _halves(name: str, hashed: str) -> dict[str, str]:
    """The sum of a bigint, exact, as two sums that do not overflow; `_whole` puts them together."""
    return {f"{name}_low": f"sum({hashed} & 4294967295L)", f"{name}_high": f"sum(shiftright({hashed}, 32))"}


def _whole(counts: Mapping[str, int], name: str) -> int:
    return (counts.get(f"{name}_high", 0) << 32) + counts.get(f"{name}_low", 0)


def _all(first: DataFrame, *others: DataFrame) -> DataFrame:
    for other in others:
        first = first.unionByName(other, allowMissingColumns=True)
    return first
