"""The comparison record by record: both sides narrowed, grouped by key once, and summed up once, for many plans.

It is derived from the contract alone, without a look at how the cleaner works. It finds which rule is broken, how often
and by which records; where sums say already that all is well (see `sums`), nobody needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from expectations.claim import BURIED, QUARANTINED, READ, WRITTEN
from expectations.figures import with_figures
from expectations.transactions import with_marks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from expectations.claim import Claim

KEYS = ("topic", "partition", "role", "key", "slot", "mark")

_READ, _WRITTEN = (f"(side = '{side}' AND level != {BURIED})" for side in (READ, WRITTEN))
_BEFORE, _NOW = (f"(side = '{side}' AND level = {BURIED})" for side in (READ, WRITTEN))
# A stamp counts only where Firn itself wrote it: levels 0 and 1 come from any writer.
_STAMPED = f"({_READ} AND level >= 2 AND horizon IS NOT NULL)"
_AT_END = "(offset = log_end)"

_AGGREGATES = {
    "n_in": f"count_if({_READ})",
    "n_out": f"count_if({_WRITTEN})",
    "read_max": f"max(if({_READ}, offset, NULL))",
    "in_min": f"min(if({_READ}, offset, NULL))",
    "out_max": f"max(if({_WRITTEN}, offset, NULL))",
    "out_min": f"min(if({_WRITTEN}, offset, NULL))",
    "read_tombstone": f"max_by(tombstone, if({_READ}, offset, NULL))",
    "read_fingerprint": f"max_by(fingerprint, if({_READ}, offset, NULL))",
    "stamped_max": f"max(if({_STAMPED}, offset, NULL))",
    "stamped_horizon": f"max_by(horizon, if({_STAMPED}, offset, NULL))",
    "before_max": f"max(if({_BEFORE}, offset, NULL))",
    "before_fingerprint": f"max_by(fingerprint, if({_BEFORE}, offset, NULL))",
    "out_fingerprint": f"max_by(fingerprint, if({_WRITTEN}, offset, NULL))",
    "out_horizon": f"max_by(horizon, if({_WRITTEN}, offset, NULL))",
    "n_buried": f"count_if({_NOW})",
    "buried_fingerprint": f"max_by(fingerprint, if({_NOW}, offset, NULL))",
    "tombstones_out": f"count_if({_WRITTEN} AND tombstone)",
    "n_quarantined": f"count_if({_WRITTEN} AND level = {QUARANTINED})",
    "n_level": f"count_if({_WRITTEN} AND level != level_expected)",
    "a_level": f"max(if({_WRITTEN} AND level != level_expected, level, NULL))",
    "n_foreign": "count_if(foreign)",
    "ended": "max(ended)",
    "n_undecided": f"count_if({_READ} AND undecided)",
    "n_transaction": f"count_if({_READ} AND transaction)",
    "end_in": f"count_if({_READ} AND {_AT_END})",
    "end_out": f"count_if({_WRITTEN} AND level != {QUARANTINED} AND {_AT_END})",
    "bits": "bit_or(bit)",
}
"""All of them have buffers of a fixed size, so that Spark hashes (and combines before the shuffle), never sorts."""


def groups(compared: DataFrame, claims: Sequence[Claim]) -> DataFrame:
    """One row per group of a `comparison`, with the figures of its claim. What makes a group depends on the `role`:

    key    a record that a cleaning judges by its key: all records of a key, in `key`
    copy   a record that must come out as it went in (all of a merge; those without a key): those with the
           same offset in `slot` and the same fingerprint in `mark`
    aborted, control
           a record of an aborted transaction, a control record: like a copy, whatever its key
    word   64 neighbouring offsets that were read, numbered in `slot`, as a bitmap in `bits`: what finds
           an offset that occurs twice even under two keys

    Tombstones that were removed earlier (read at level BURIED) count where one is newer than all that was read of its
    key, and something was: it has `risen`, and is the newest record of the key. The newest is told of in `in_...`.
    """
    grouped = _with_roles(compared, claims).groupBy(*KEYS)
    found = grouped.agg(*(F.expr(sql).alias(name) for name, sql in _AGGREGATES.items()))
    newest = found.selectExpr("*", "coalesce(before_max > read_max, false) AS risen").selectExpr(
        "*",
        "if(risen, before_max, read_max) AS in_max",
        "if(risen, true, read_tombstone) AS in_tombstone",
        "if(risen, before_fingerprint, read_fingerprint) AS in_fingerprint",
        "if(NOT risen AND stamped_max = read_max, stamped_horizon, NULL) AS in_horizon",
    )
    return with_figures(newest, claims, "plan", "now", "stamp", "clean_below", "log_end", "told")


def _with_roles(compared: DataFrame, claims: Sequence[Claim]) -> DataFrame:
    merge = claims[0].lane == "merge"
    known = with_marks(with_figures(compared, claims, "plan", "log_end", "told"), claims)
    role = "if(key IS NULL, 'copy', 'key')"
    role = "'copy'" if merge else f"CASE WHEN aborted THEN 'aborted' WHEN control THEN 'control' ELSE {role} END"
    # The end of the log stays in the topic even without a key (C4); it is quarantined once it is no longer the end.
    quarantined = "false" if merge else "role = 'copy' AND NOT offset <=> log_end"
    whole = "xxhash64(fingerprint, horizon, horizon IS NULL)" if merge else "fingerprint"
    records = known.selectExpr("*", f"{role} AS role").selectExpr(
        *("side", "topic", "partition", "offset", "tombstone", "horizon", "level", "fingerprint"),
        *("ended", "undecided", "log_end", "role"),
        "control OR transactional AS transaction",
        "if(role = 'key', key, NULL) AS key",
        "if(role = 'key', NULL, offset) AS slot",
        f"if(role = 'key', NULL, {whole}) AS mark",
        f"if({quarantined}, {QUARANTINED}, {claims[0].level_out}) AS level_expected",
        "plan IS NULL OR offset IS NULL AS foreign",
    )
    if merge:  # a copy keeps what was landed twice, too (C13)
        return records.selectExpr("*", "cast(NULL AS bigint) AS bit")
    apart = words(compared.where(_READ).selectExpr("*", "false AS transaction"))
    return records.unionByName(apart, allowMissingColumns=True)


def words(read: DataFrame) -> DataFrame:
    """A row per record of `read` with its word, the `slot`, and its `bit` in it; both NULL without an offset."""
    return read.selectExpr(
        f"'{READ}' AS side",
        *("topic", "partition", "level"),
        "transaction",
        "'word' AS role",
        "shiftright(offset, 6) AS slot",
        "shiftleft(1L, cast(offset & 63 AS int)) AS bit",
    )


def measured(merge: bool) -> dict[str, str]:
    """What is counted whether or not a rule is broken: SQL by the figure's name, to be summed over all groups."""
    record, known = "role != 'word'", "role = 'key' AND n_in > 0"
    # In a cleaning, a copy of a record without a key goes like any other copy; a merge keeps them all (C13).
    copies = "false" if merge else "role NOT IN ('key', 'word') AND n_in > 1"
    vanished = "n_in > 0 AND n_out = 0"
    risen = "cast(risen AS int)"
    return {
        "records_in": f"if({record}, n_in + {risen}, 0L)",
        "records_out": f"if({record}, n_out - n_quarantined, 0L)",
        "superseded": f"if({known}, n_in + {risen} - 1, 0L) + if({copies}, n_in - 1, 0L)",
        "tombstones_removed": f"if({known} AND in_tombstone AND NOT out_max <=> in_max, 1L, 0L)",
        "quarantined": f"if({record}, n_quarantined, 0L)",
        "aborted": f"if(role = 'aborted' AND {vanished}, 1L, 0L)",
        "markers_removed": f"if(role = 'control' AND {vanished}, 1L, 0L)",
        "control_in": "if(role = 'control', n_in, 0L)",
        "repeated": "if(role = 'word', n_in - bit_count(bits), 0L)",
        "restored": f"if({known}, {risen}, 0L)",
        "keys_in": f"if({known}, 1L, 0L)",
        "keys_out": "if(role = 'key' AND n_out > 0, 1L, 0L)",
        "tombstones_in": f"if({known} AND in_tombstone, 1L, 0L)",
        "tombstones_out": "if(role = 'key', tombstones_out, 0L)",
        "end_in": f"if({record}, end_in, 0L)",
        "repeats_in": "if(role = 'copy' AND n_in > 1, n_in - 1, 0L)",
    }
