"""Promises about single lanes: `erase` (C30), `convert` (C27) and `hide` (C28).

`erase` removes the requested records and no others. `convert` hides by position deletes exactly the records that
equality deletes hide. `hide` hides only superseded records, and leaves one visible record per key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from firnlake_expectations.promises.promise import Figures, Promise, Rule
from firnlake_expectations.promises.records import RECORDS_UNCHANGED
from firnlake_expectations.wording import count, log_name

if TYPE_CHECKING:
    from firnlake_expectations.claim import Claim


_ERASE = ("erase",)


def _bound(claim: Claim) -> str:
    return "" if claim.erase_before is None else f" below offset {claim.erase_before:,}"


def _kept_end(figures: Figures, claim: Claim) -> str:
    end = f"Offset {claim.log_end_offset:,}"
    asked = ", although a request names it" if claim.end_kept else ""
    return f"{end} was read and is kept{asked}." if figures["end_in"] else f"{end} is in no segment that was rewritten."


REQUESTED_RECORDS_GONE = Promise(
    number="C30",
    name="expect_requested_records_gone",
    lanes=_ERASE,
    sentence=lambda claim: (
        f"No segment of {log_name(claim.topic, claim.partition)}, written or left in place, holds a record"
        f"{_bound(claim)} that a request names: {count(claim.erased, 'record')} erased."
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
    lanes=_ERASE,
    sentence=lambda claim: (
        f"All {count(claim.records_out, 'other record')} of the rewritten segments are kept with their offsets, "
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
            *("record", "was written but not read in this form", "were written but not read in this form"),
            *("{n_out} written in this form", "as many as were read: {n_in}"),
        ),
        RECORDS_UNCHANGED.rules[-1],
    ),
)

LEVELS_KEPT = Promise(
    number="C30",
    name="expect_levels_kept",
    lanes=_ERASE,
    sentence=lambda _: "Every record keeps its level, except that a tail may be written as a run.",
    kept=lambda figures, _: f"{count(figures['records_out'], 'record')} at the level at which they were read.",
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
    lanes=_ERASE,
    sentence=lambda claim: (
        f"The end of the log {log_name(claim.topic, claim.partition)}, offset {claim.log_end_offset:,}, is kept, "
        "whether or not a request names it."
    ),
    kept=_kept_end,
    checked="end_in",
    rules=(
        Rule(
            *("log_end_erased", "copies", '"offset" = log_end AND n_out < n_in'),
            *("log end", "is missing", "are missing"),
            *("not written", "offset {log_end}, the end of the log"),
        ),
    ),
)


def _sentence(claim: Claim) -> str:
    return (
        f"Without the equality deletes, readers of {log_name(claim.topic, claim.partition)} see exactly the "
        f"{count(claim.records_in, 'record')} that they saw with them."
    )


SAME_VISIBLE_RECORDS = Promise(
    number="C27",
    name="expect_same_visible_records",
    lanes=("convert",),
    sentence=_sentence,
    kept=lambda figures, _: f"{count(figures['records_out'], 'record')}, the same as before.",
    checked="records_in",
    rules=(
        Rule(
            *("no_longer_visible", "groups", "greatest(n_in - n_out, 0)"),
            *("record", "was visible and is hidden", "were visible and are hidden"),
            *("{n_out} visible", "as many as before: {n_in}"),
        ),
        Rule(
            *("visible_again", "groups", "greatest(n_out - n_in, 0)"),
            *("record", "was hidden and is visible again", "were hidden and are visible again"),
            *("{n_out} visible", "as many as before: {n_in}"),
        ),
    ),
)

_HIDE = ("hide",)


def _visible_end(figures: Figures, claim: Claim) -> str:
    end = f"Offset {claim.log_end_offset:,}"
    return f"{end} is visible as before." if figures["end_in"] else f"{end} is in no segment that was compared."


ONLY_SUPERSEDED_HIDDEN = Promise(
    number="C2, C3, C10, C28",
    name="expect_only_superseded_records_hidden",
    lanes=_HIDE,
    sentence=lambda claim: (
        f"Of {count(claim.records_in, 'record')} that readers of {log_name(claim.topic, claim.partition)} saw, "
        f"the plan hides {claim.superseded:,}, each with a newer record of its key visible. Nothing else has changed."
    ),
    kept=lambda figures, _: f"{count(figures['superseded'], 'older record')} hidden, and no other record changed.",
    checked="records_in",
    rules=(
        Rule(
            *("not_superseded", "vanished"),
            'CASE WHEN NOT (competes AND coalesce(newest > "offset", false)) THEN n_in - n_out END',
            *("record", "is hidden although no newer record of its key is visible"),
            "are hidden although no newer records of their keys are visible",
            *("hidden", "visible, because no newer record of its key is"),
        ),
        Rule(
            *("unhidden", "changed", "greatest(n_out - n_in, 0)"),
            *("record", "was hidden and is visible again", "were hidden and are visible again"),
            *("{n_out} visible", "as many as before: {n_in}"),
        ),
    ),
)

ONE_VISIBLE_RECORD = Promise(
    number="C6, C28",
    name="expect_one_visible_record_per_key",
    lanes=_HIDE,
    sentence=lambda claim: (
        f"In the compared segments, only the newest record of every key of {log_name(claim.topic, claim.partition)} "
        "is visible, except for older records that landed late, below a stamped tombstone (C9)."
    ),
    kept=lambda figures, _: f"{count(figures['keys_out'], 'key')}, each with only its newest record visible.",
    checked="keys_out",
    rules=(
        Rule(
            *("still_visible", "still_visible", "1"),
            *(
                "record",
                "is visible although a newer record of its key is visible",
                "are visible although newer records of their keys are visible",
            ),
            *("offset {offset}", "nothing older than offset {newest}"),
        ),
    ),
)

LOG_END_VISIBLE = Promise(
    number="C4",
    name="expect_log_end_kept",
    lanes=_HIDE,
    sentence=lambda claim: (
        f"The end of the log {log_name(claim.topic, claim.partition)}, offset {claim.log_end_offset:,}, is visible if "
        "it was visible before."
    ),
    kept=_visible_end,
    checked="end_in",
    rules=(
        Rule(
            *("log_end_hidden", "vanished", '"offset" = log_end'),
            *("log end", "is hidden", "are hidden"),
            *("hidden", "offset {log_end}, the end of the log"),
        ),
    ),
)
