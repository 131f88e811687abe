"""Promises about lane `mask` (C28): every record that it hides is superseded, and afterwards each key shows one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from expectations.promises.promise import Figures, Promise, Rule
from expectations.wording import count, log_name

if TYPE_CHECKING:
    from expectations.claim import Claim

LANE = ("mask",)


def _end(figures: Figures, claim: Claim) -> str:
    end = f"Offset {claim.log_end_offset:,}"
    return f"{end} is visible as before." if figures["end_in"] else f"{end} is in no segment that was compared."


ONLY_SUPERSEDED_HIDDEN = Promise(
    number="C2, C3, C10, C28",
    name="expect_only_superseded_records_hidden",
    lanes=LANE,
    sentence=lambda claim: (
        f"Of {count(claim.records_in, 'record')} that readers of {log_name(claim.topic, claim.partition)} saw, "
        f"{claim.superseded:,} are hidden: a newer one of the key is visible for each. Nothing else has changed."
    ),
    kept=lambda figures, _: f"{count(figures['superseded'], 'older record')} hidden; none other, and none came back.",
    checked="records_in",
    rules=(
        Rule(
            *("not_superseded", "masked"),
            'CASE WHEN NOT (competes AND coalesce(newest > "offset", false)) THEN n_in - n_out END',
            *("record", "is hidden though no newer one of its key is visible"),
            "are hidden though no newer ones of their keys are visible",
            *("hidden", "visible: no newer record of its key is"),
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
    lanes=LANE,
    sentence=lambda claim: (
        f"Every key of {log_name(claim.topic, claim.partition)} shows its newest record alone in the segments that "
        "were compared; only below a stamped tombstone may an older one be left, which landed late (C9)."
    ),
    kept=lambda figures, _: f"{count(figures['keys_out'], 'key')}, each with its newest record alone.",
    checked="keys_out",
    rules=(
        Rule(
            *("still_visible", "still_visible", "1"),
            *(
                "record",
                "is visible though a newer one of its key is",
                "are visible though newer ones of their keys are",
            ),
            *("offset {offset}", "nothing older than offset {newest}"),
        ),
    ),
)

LOG_END_VISIBLE = Promise(
    number="C4",
    name="expect_log_end_kept",
    lanes=LANE,
    sentence=lambda claim: (
        f"The end of the log {log_name(claim.topic, claim.partition)}, offset {claim.log_end_offset:,}, is visible if "
        "it was."
    ),
    kept=_end,
    checked="end_in",
    rules=(
        Rule(
            *("log_end_hidden", "masked", '"offset" = log_end'),
            *("log end", "is hidden", "are hidden"),
            *("hidden", "offset {log_end}, the end of the log"),
        ),
    ),
)
