"""Promises about lane `retain` (C19), which only drops whole segments: they are judged from metadata alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firnlake_expectations.promises.promise import Figures, Promise, Rule
from firnlake_expectations.wording import count, log_name

if TYPE_CHECKING:
    from firnlake_expectations.claim import Claim


_RETAIN = ("retain",)


def _dropped(figures: Figures, _: Claim) -> str:
    return f"{count(figures['dropped'], 'segment')} dropped, {count(figures['records_in'], 'record')}."


ONLY_EXPIRED_DROPPED = Promise(
    number="C19",
    name="expect_only_expired_segments_dropped",
    lanes=_RETAIN,
    sentence=lambda claim: (
        f"Every segment of {log_name(claim.topic, claim.partition)} that is dropped is past retention.ms, or "
        "retention.bytes remain without it."
    ),
    kept=_dropped,
    checked="dropped",
    rules=(Rule("not_expired", None, "", "segment", "is not past retention", "are not past retention"),),
)

OLDEST_DROPPED = Promise(
    number="C19",
    name="expect_oldest_segments_dropped",
    lanes=_RETAIN,
    sentence=lambda claim: (
        f"Every record that stays in {log_name(claim.topic, claim.partition)} is newer than all dropped records."
    ),
    kept=lambda figures, _: f"{count(figures['staying'], 'segment')} left, all of them newer.",
    checked="staying",
    rules=(
        Rule(
            *("out_of_order", None, "", "segment", "stays although it may hold older records than a dropped one"),
            "stay although they may hold older records than a dropped one",
        ),
    ),
)

LOG_END_RETAINED = Promise(
    number="C4",
    name="expect_log_end_kept",
    lanes=_RETAIN,
    sentence=lambda claim: (
        f"The end of the log {log_name(claim.topic, claim.partition)}, offset {claim.log_end_offset:,}, is kept."
    ),
    kept=lambda _, claim: f"Offset {claim.log_end_offset:,} is kept.",
    checked="dropped",
    rules=(Rule("log_end_dropped", None, "", "segment", "may hold the log end", "may hold the log end"),),
)
