"""The rules of the contract, each as a weight on a group of records: 0 where it is kept, else how many break it.

The columns are those of the groups (see `evidence`); how a broken rule is said is in `sayings`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column

    from expectations.claim import Claim


def weights(claim: Claim) -> dict[str, Column]:
    """The weight of every rule of the claim's lane by the rule's name, never NULL."""
    found = merge_weights() if claim.lane == "merge" else cleaning_weights(claim)
    found["foreign"] = F.col("n_foreign")
    return {name: F.coalesce(weight.cast("long"), F.lit(0)) for name, weight in found.items()}


def merge_weights() -> dict[str, Column]:
    """The rules of a copy (C13): as many of each record come out as went in, all at the new level."""
    read, written = F.col("n_in"), F.col("n_out")
    return {
        "lost_copy": F.greatest(read - written, F.lit(0)),
        "added_copy": F.greatest(written - read, F.lit(0)),
        "level": F.col("n_level"),
    }


def cleaning_weights(claim: Claim) -> dict[str, Column]:
    """The rules of a cleaning (C1 to C10), for the keys, the records that have none and the bitmap words."""
    keyed, copied = F.col("role") == "key", F.col("role") == "copy"
    control, aborted = F.col("role") == "control", F.col("role") == "aborted"
    read, written = F.col("n_in"), F.col("n_out")
    newest, oldest = F.col("in_max"), F.col("in_min")
    known, tombstone = keyed & (read > 0), F.col("in_tombstone")
    kept = known & F.col("out_max").eqNullSafe(newest)
    may_go = known & removable(claim)
    gone = may_go & ~kept
    once = F.least(read, F.lit(1))
    marker_may_go = control & (read > 0) & marker_removable(claim)
    stays = (kept & ~may_go) | (control & (read > 0) & (written > 0) & ~marker_may_go)
    return {
        "repeated_key": keyed & (written > 1),
        "lost": known & ~tombstone & ~kept,
        "stale": known & (F.col("out_min") < newest) & (F.col("out_min") >= oldest),
        "tombstone_lost": known & tombstone & ~may_go & ~kept,
        "tombstone_left": may_go & kept,
        "horizon": stays & ~F.col("out_horizon").eqNullSafe(expected_horizon(claim)),
        "log_end": (F.col("end_in") > 0) & (F.col("end_out") == 0),
        "past_end": newest > claim.log_end_offset,
        "changed": kept & (F.col("in_fingerprint") != F.col("out_fingerprint")),
        # What is removed is kept beside the topic as it was, and nothing else goes there.
        "unburied": gone & ~((F.col("n_buried") == 1) & (F.col("buried_fingerprint") == F.col("in_fingerprint"))),
        "buried_alive": F.when(F.coalesce(gone, F.lit(False)), 0).otherwise(F.col("n_buried")),
        "invented": keyed & (written > 0) & ((read == 0) | (F.col("out_max") > newest) | (F.col("out_min") < oldest)),
        "null_lost": F.when(copied, F.greatest(once - written, F.lit(0))),
        "null_added": F.when(copied, F.greatest(written - once, F.lit(0))),
        "null_visible": F.when(copied, F.col("n_level")),
        "aborted_left": F.when(aborted, written),
        "undecided": F.col("n_undecided"),
        "untold": F.lit(0) if claim.transactional else F.col("n_transaction"),
        "marker_lost": control & (read > 0) & (written == 0) & ~marker_may_go,
        "marker_left": marker_may_go & (written > 0),
        "control_added": F.when(control, F.greatest(written - once, F.lit(0))),
        "level": F.when(keyed | control, F.col("n_level")),
    }


def removable(claim: Claim) -> Column:
    """Whether the newest record read of a key is a tombstone that this commit may remove.

    It was stamped by an earlier commit and its horizon has passed, it is clean again now and not the log end
    (C9), and the plan supersedes nothing by it: it must outlive, in a commit, what it supersedes (C2).
    """
    return F.col("in_tombstone") & _may_go(claim) & (F.col("in_min") == F.col("in_max"))


def marker_removable(claim: Claim) -> Column:
    """Whether a control record that was read is a marker that this commit may remove: by the rules of a tombstone, and
    only while nothing of its transaction is read (C10)."""
    return F.col("ended") & _may_go(claim)


def _may_go(claim: Claim) -> Column:
    return (
        F.col("in_horizon").isNotNull()
        & (F.col("in_horizon") <= claim.now_ms * 1000)
        & _clean(claim)
        & (F.col("in_max") != claim.log_end_offset)
    )


def expected_horizon(claim: Claim) -> Column:
    """The delete horizon, epoch microseconds, that the record kept of a key, or a control record, must carry (C8 to
    C10)."""
    stamped = F.col("in_horizon").isNotNull() & (F.col("in_min") == F.col("in_max"))
    bears = F.when(F.col("role") == "control", F.col("ended")).otherwise(F.col("in_tombstone"))
    return (
        F.when(~bears, None)
        .when(stamped, F.col("in_horizon"))
        .when(_clean(claim), (claim.now_ms + claim.delete_retention_ms) * 1000)
    )


def _clean(claim: Claim) -> Column:
    return F.lit(True) if claim.clean_below is None else F.col("in_max") < claim.clean_below
