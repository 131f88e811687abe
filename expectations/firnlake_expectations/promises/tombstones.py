"""Promises about tombstones (C7 to C9), and about topics of transactional producers (C10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firnlake_expectations.claim import BURIED
from firnlake_expectations.promises.promise import (
    ABORTED,
    ADDED,
    CLEANINGS,
    CONTROL,
    HORIZON,
    KEPT,
    KNOWN,
    MARKER,
    MARKER_MAY,
    MAY,
    Promise,
    Rule,
)

if TYPE_CHECKING:
    from firnlake_expectations.claim import Claim
    from firnlake_expectations.promises.promise import Figures


def _first_horizon(_: Figures, claim: Claim) -> str:
    if claim.stamp_ms is not None:
        return ""
    return "the first delete horizons are not judged: the metadata file with delete.retention.ms is gone"


KEPT_TOMBSTONES = Promise(
    number="C7, C8, C9",
    name="expect_tombstones_kept",
    lanes=CLEANINGS,
    sentence=(
        "Every tombstone that is the newest of its key is kept until its delete horizon has passed and no older record "
        "of its key can come back."
    ),
    checked="tombstones_in",
    noun="tombstone",
    rules=(
        Rule(
            *("tombstone_lost", "groups", f"{KNOWN} AND in_tombstone AND NOT {MAY} AND NOT {KEPT}"),
            *("tombstone", "was removed too early", "were removed too early"),
            *("{there}", "the tombstone at offset {in_max}: {reason}"),
        ),
    ),
)

GONE_TOMBSTONES = Promise(
    number="C9",
    name="expect_tombstones_gone",
    lanes=CLEANINGS,
    sentence=(
        "Every tombstone past its delete horizon is removed, unless a segment outside the plan may hold a lower offset."
    ),
    checked="tombstones_in",
    noun="tombstone",
    rules=(
        Rule(
            *("tombstone_left", "groups", f"{MAY} AND {KEPT}"),
            *("tombstone", "remains past its delete horizon", "remain past their delete horizon"),
            *("the tombstone at offset {in_max}", "nothing: its delete horizon was {stamp_in}"),
        ),
        # Removed tombstones are kept beside the topic unchanged, and nothing else goes there.
        Rule(
            *(
                "unburied",
                "groups",
                f"{MAY} AND NOT {KEPT} AND NOT coalesce(n_buried = 1 AND buried_mark = in_mark, false)",
            ),
            *("removed tombstone", "was not kept unchanged among the removed tombstones"),
            "were not kept unchanged among the removed tombstones",
            f"{{removed_tombstones}} at level {BURIED}",
            f"the tombstone of offset {{in_max}} at level {BURIED}",
        ),
        Rule(
            *("buried_alive", "groups", f"CASE WHEN coalesce({MAY} AND NOT {KEPT}, false) THEN 0 ELSE n_buried END"),
            *("record", "is among the removed tombstones although it was not removed"),
            "are among the removed tombstones although they were not removed",
            *(f"{{removed_tombstones}} at level {BURIED}", "none"),
        ),
        Rule(
            *("left_due", "left_behind", "due"),
            *("tombstone", "is in a segment left in place but had to be stamped or removed"),
            "are in segments left in place but had to be stamped or removed",
            "the tombstone is in a segment left in place",
            "stamped with its delete horizon, or removed if the horizon has passed",
        ),
    ),
)

DELETE_HORIZONS = Promise(
    number="C8, C9",
    name="expect_delete_horizons",
    lanes=CLEANINGS,
    sentence=(
        "A tombstone found clean for the first time gets its delete horizon; one that was stamped before keeps its "
        "delete horizon; no other record has one."
    ),
    checked="records_out",
    noun="record",
    note=_first_horizon,
    rules=(
        Rule(
            "horizon",
            "groups",
            f"(({KEPT} AND NOT coalesce({MAY}, false)) "
            f"OR ({MARKER} AND n_out > 0 AND NOT coalesce({MARKER_MAY}, false))) "
            f"AND out_horizon IS DISTINCT FROM ({HORIZON})",
            *("record", "has a wrong delete horizon", "have a wrong delete horizon"),
            *("{stamp_out}", "{stamp_expected}"),
        ),
    ),
)


ABORTED_RECORDS_GONE = Promise(
    number="C10",
    name="expect_aborted_records_gone",
    lanes=CLEANINGS,
    sentence="Every transaction read has ended, and no record of an aborted transaction remains.",
    checked="records_in",
    noun="record",
    rules=(
        Rule(
            *("aborted_left", "groups", f"CASE WHEN {ABORTED} THEN n_out ELSE 0 END"),
            *("record of an aborted transaction", "remains", "remain"),
            *("the record at offset {out_max}", "nothing: its transaction was aborted"),
        ),
        Rule(
            *("undecided", "groups", "n_undecided"),
            *("record", "is part of a transaction that has not ended", "are part of transactions that have not ended"),
            *("offset {in_max}, of a transaction without a marker", "only records of ended transactions"),
        ),
        Rule(
            *("untold", "groups", "CASE WHEN NOT told THEN n_transaction ELSE 0 END"),
            *("record", "is transactional, but its plan says that no record is"),
            "are transactional, but their plan says that no record is",
            *("offset {in_max}, of a transaction", "no such record, or a plan that names transactions"),
        ),
    ),
)

MARKERS_KEPT = Promise(
    number="C10",
    name="expect_markers_kept",
    lanes=CLEANINGS,
    sentence=(
        "Every control record is kept unchanged until no record of its transaction remains and its delete horizon has "
        "passed."
    ),
    checked="control_in",
    noun="control record",
    rules=(
        Rule(
            *("marker_lost", "groups", f"{MARKER} AND n_out = 0 AND NOT coalesce({MARKER_MAY}, false)"),
            *("control record", "was removed too early", "were removed too early"),
            *("nothing written", "the control record at offset {in_max}, as it was read"),
        ),
        Rule(
            *("marker_left", "groups", f"{MARKER_MAY} AND n_out > 0"),
            *("marker", "remains past its delete horizon", "remain past their delete horizon"),
            *("the marker at offset {in_max}", "nothing: its delete horizon was {stamp_in}"),
        ),
        Rule(
            *("control_added", "groups", f"CASE WHEN {CONTROL} THEN {ADDED} ELSE 0 END"),
            *(
                "control record",
                "was written but not read in this form",
                "were written but not read in this form",
            ),
            *("{written} in this form", "as it was read, once"),
        ),
    ),
    transactional=True,
)
