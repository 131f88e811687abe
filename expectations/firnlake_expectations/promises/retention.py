"""Promises about lane `retain` (C19), which only drops whole segments: they are judged from metadata alone."""

from __future__ import annotations

from firnlake_expectations.promises.promise import Promise, Rule

_RETAIN = ("retain",)

ONLY_EXPIRED_DROPPED = Promise(
    number="C19",
    name="expect_only_expired_segments_dropped",
    lanes=_RETAIN,
    sentence="Every segment that is dropped is past retention.ms, or retention.bytes remain without it.",
    checked="dropped",
    noun="segment",
    rules=(Rule("not_expired", None, "", "segment", "is not past retention", "are not past retention"),),
)

OLDEST_DROPPED = Promise(
    number="C19",
    name="expect_oldest_segments_dropped",
    lanes=_RETAIN,
    sentence="Every record that stays is newer than all dropped records.",
    checked="staying",
    noun="segment",
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
    sentence="The record at the end of the log is kept.",
    checked="dropped",
    noun="segment",
    rules=(Rule("log_end_dropped", None, "", "segment", "may hold the log end", "may hold the log end"),),
)
