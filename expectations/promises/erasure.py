"""Promises about lane `erase` (C30): what is requested goes, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from expectations.promises.promise import Figures, Promise, Rule
from expectations.promises.records import RECORDS_UNCHANGED
from expectations.wording import count, log_name

if TYPE_CHECKING:
    from expectations.claim import Claim

LANE = ("erase",)


def _bound(claim: Claim) -> str:
    return "" if claim.erase_before is None else f" below offset {claim.erase_before:,}"


def _end(figures: Figures, claim: Claim) -> str:
    end = f"Offset {claim.log_end_offset:,}"
    asked = ", though it is requested" if claim.end_kept else ""
    return f"{end} was read and is kept{asked}." if figures["end_in"] else f"{end} is in no segment that was rewritten."


REQUESTED_RECORDS_GONE = Promise(
    number="C30",
    name="expect_requested_records_gone",
    lanes=LANE,
    sentence=lambda claim: (
        f"No record{_bound(claim)} that a request names is in what was written of "
        f"{log_name(claim.topic, claim.partition)}, or in a segment left in place: {claim.erased:,} erased."
    ),
    kept=lambda figures, _: f"{count(figures['erased'], 'record')} erased; none remains.",
    checked="records_in",
    rules=(
        Rule(
            *("remaining", "remaining", "1"),
            *("record", "of a requested key remains", "of requested keys remain"),
            *("the record is {lies}", "nothing: its key is to be erased"),
        ),
    ),
)

OTHER_RECORDS_UNCHANGED = Promise(
    number="C1, C30",
    name="expect_other_records_unchanged",
    lanes=LANE,
    sentence=lambda claim: (
        f"All {count(claim.records_out, 'other record')} of the rewritten segments are there with their offsets, "
        "timestamps, headers, keys, values and delete horizons, and no other record was written."
    ),
    kept=lambda figures, _: f"{count(figures['records_out'], 'record')}, the same that were read.",
    checked="records_out",
    rules=(
        Rule(
            *("lost_other", "copies", "greatest(n_in - n_out, 0)"),
            *("record", "that no request names is lost or changed", "that no request names are lost or changed"),
            *("{n_out} written unchanged", "as many as were read: {n_in}"),
        ),
        Rule(
            *("added_other", "copies", "greatest(n_out - n_in, 0)"),
            *("record", "was written that was not read in this form", "were written that were not read in this form"),
            *("{n_out} written in this form", "as many as were read: {n_in}"),
        ),
        RECORDS_UNCHANGED.rules[-1],
    ),
)

LEVELS_KEPT = Promise(
    number="C30",
    name="expect_levels_kept",
    lanes=LANE,
    sentence=lambda _: "Every record keeps its level; only a tail may be written as a run.",
    kept=lambda figures, _: f"{count(figures['records_out'], 'record')} at the level that they were read at.",
    checked="records_out",
    rules=(
        Rule(
            *("level_kept", "levels", "1"),
            *("record", "is at another level", "are at another level"),
            *("level {a_level}", "level {level_in}"),
        ),
    ),
)

LOG_END_NOT_ERASED = Promise(
    number="C4",
    name="expect_log_end_kept",
    lanes=LANE,
    sentence=lambda claim: (
        f"The end of the log {log_name(claim.topic, claim.partition)}, offset {claim.log_end_offset:,}, stays, "
        "requested or not."
    ),
    kept=_end,
    checked="end_in",
    rules=(
        Rule(
            *("log_end_erased", "copies", '"offset" = log_end AND n_out < n_in'),
            *("log end", "is missing", "are missing"),
            *("not written", "offset {log_end}, the end of the log"),
        ),
    ),
)
