"""Promises about topics of transactional producers (C10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from expectations.promises.fate import ABORTED, ADDED, CONTROL, MARKER, MARKER_MAY
from expectations.promises.promise import CLEANINGS, Figures, Promise, Rule
from expectations.wording import count, log_name

if TYPE_CHECKING:
    from expectations.claim import Claim


def _aborted_gone(claim: Claim) -> str:
    log = log_name(claim.topic, claim.partition)
    if not claim.transactional:
        return f"No record read from {log} is transactional, so none was aborted."
    return (
        f"Every transaction read from {log} has ended, and no record of an aborted transaction remains: "
        f"{count(claim.aborted, 'record')} removed, whatever the key."
    )


def _aborted_gone_kept(figures: Figures, claim: Claim) -> str:
    if not claim.transactional:
        return "No transactional record."
    return f"{count(figures['aborted'], 'record')} of aborted transactions removed, none remains."


ABORTED_RECORDS_GONE = Promise(
    number="C10",
    name="expect_aborted_records_gone",
    lanes=CLEANINGS,
    sentence=_aborted_gone,
    kept=_aborted_gone_kept,
    checked="records_in",
    rules=(
        Rule(
            *("aborted_left", "groups", f"CASE WHEN {ABORTED} THEN n_out END"),
            *("record of an aborted transaction", "remains", "remain"),
            *("the record at offset {out_max}", "nothing: its transaction was aborted"),
        ),
        Rule(
            *("undecided", "groups", "n_undecided"),
            *("record", "is part of a transaction that has not ended", "are part of transactions that have not ended"),
            *("offset {in_max}, of a transaction without a marker", "records of ended transactions only"),
        ),
        Rule(
            *("untold", "groups", "CASE WHEN NOT told THEN n_transaction END"),
            *("record", "is transactional, but its plan says that none is"),
            "are transactional, but their plan says that none is",
            *("offset {in_max}, of a transaction", "no such record, or a plan that names transactions"),
        ),
    ),
)

MARKERS_KEPT = Promise(
    number="C10",
    name="expect_markers_kept",
    lanes=CLEANINGS,
    sentence=lambda claim: (
        "Every control record stays unchanged until no record of its transaction remains and its delete horizon has "
        f"passed: {count(claim.markers_removed, 'marker')} removed."
    ),
    kept=lambda figures, _: (
        f"{count(figures['control_in'], 'control record')} read, {figures['markers_removed']:,} removed."
    ),
    checked="control_in",
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
            *("control_added", "groups", f"CASE WHEN {CONTROL} THEN {ADDED} END"),
            *(
                "control record",
                "was written that was not read in this form",
                "were written that were not read in this form",
            ),
            *("{written} in this form", "as it was read, once"),
        ),
    ),
    transactional=True,
)
