"""Promises about single lanes: `erase` (C30), `convert` (C27) and `retain` (C19).

`erase` removes the requested records and no others. `convert` hides by position deletes exactly the records that
equality deletes hide. `retain` only drops whole segments, so it is judged from metadata alone.
"""

from __future__ import annotations

from firnlake_expectations.promises.promise import Promise, Rule
from firnlake_expectations.promises.records import RECORDS_UNCHANGED

_ERASE = ("erase",)

REQUESTED_RECORDS_GONE = Promise(
    number="C30",
    name="expect_requested_records_gone",
    lanes=_ERASE,
    sentence="No segment, written or left in place, holds a record that a request names.",
    checked="records_in",
    noun="record",
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
    sentence=(
        "Every other record of the rewritten segments is kept with its offset, timestamp, headers, key, value and "
        "delete horizon, and no other record was written."
    ),
    checked="records_out",
    noun="record",
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
    sentence="Every record keeps its level, except that a tail may be written as a run.",
    checked="records_out",
    noun="record",
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
    sentence="The record at the end of the log is kept, whether or not a request names it.",
    checked="end_in",
    noun="log end",
    rules=(
        Rule(
            *("log_end_erased", "copies", '"offset" = log_end AND n_out < n_in'),
            *("log end", "is missing", "are missing"),
            *("not written", "offset {log_end}, the end of the log"),
        ),
    ),
)


SAME_VISIBLE_RECORDS = Promise(
    number="C27",
    name="expect_same_visible_records",
    lanes=("convert",),
    sentence="Without the equality deletes, readers see exactly the records that they saw with them.",
    checked="records_in",
    noun="record",
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
