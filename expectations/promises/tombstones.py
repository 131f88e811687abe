"""Promises about tombstones (C7 to C9): when they stay, when they go, and what delete horizon they carry."""

from __future__ import annotations

from expectations.claim import BURIED
from expectations.promises.fate import HORIZON, KEPT, KNOWN, MARKER, MARKER_MAY, MAY
from expectations.promises.promise import CLEANINGS, Promise, Rule
from expectations.wording import count, moment

KEPT_TOMBSTONES = Promise(
    number="C7, C8, C9",
    name="expect_tombstones_kept",
    lanes=CLEANINGS,
    sentence=lambda claim: (
        "Every tombstone that is the newest of its key is kept until its delete horizon has passed (the plan's "
        f"clock is {moment(claim.now_ms)}) and no older record of its key can come back."
    ),
    kept=lambda figures, _: (
        f"The newest record of {count(figures['tombstones_in'], 'key')} is a tombstone; "
        f"{figures['tombstones_out']:,} kept."
    ),
    checked="tombstones_in",
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
    sentence=lambda claim: (
        "Every tombstone past its delete horizon is removed, unless a segment outside the plan may hold an older "
        f"offset: {count(claim.tombstones_removed, 'tombstone')} removed."
    ),
    kept=lambda figures, _: f"{count(figures['tombstones_removed'], 'tombstone')} removed.",
    checked="tombstones_in",
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
            "stamped with its delete horizon, or removed if that has passed",
        ),
    ),
)

DELETE_HORIZONS = Promise(
    number="C8, C9",
    name="expect_delete_horizons",
    lanes=CLEANINGS,
    sentence=lambda claim: (
        f"A tombstone found clean for the first time carries the delete horizon "
        f"{moment(claim.now_ms + claim.delete_retention_ms)}; one that was stamped before keeps its own; no other "
        "record has one."
    ),
    kept=lambda figures, _: f"Correct on all {count(figures['tombstones_out'], 'tombstone')}, and on no other record.",
    checked="tombstones_out",
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
