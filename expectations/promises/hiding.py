"""Promises about lane `lighten` (C27): what equality deletes hide is hidden by position deletes, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from expectations.promises.promise import Promise, Rule
from expectations.wording import count, log_name

if TYPE_CHECKING:
    from expectations.claim import Claim


def _sentence(claim: Claim) -> str:
    return (
        f"Without the equality deletes, readers of {log_name(claim.topic, claim.partition)} see exactly the "
        f"{count(claim.records_in, 'record')} that they saw with them."
    )


SAME_VISIBLE_RECORDS = Promise(
    number="C27",
    name="expect_same_visible_records",
    lanes=("lighten",),
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
