"""The table of promises: an entry for each promise, with its number in the contract, its sentence and its SQL rules.

`erase` removes the requested records and no others (C30). `convert` hides by position deletes exactly the records that
equality deletes hide (C27). `retain` only drops whole segments, so it is judged from metadata alone (C19). To add a
promise, add an entry here and a test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from firnlake_expectations.claim import BURIED
from firnlake_expectations.promises.promise import (
    ABORTED,
    ADDED,
    CLEANINGS,
    CONTROL,
    COPIED,
    EVERY_LANE,
    HORIZON,
    KEPT,
    KEYED,
    KNOWN,
    MARKER,
    MARKER_MAY,
    MAY,
    Figures,
    Promise,
    Rule,
    count_differences,
    equation,
    figures_told_wrong,
)

if TYPE_CHECKING:
    from firnlake_expectations.claim import Claim

FINGERPRINT = "fingerprint"
"""Rule that is broken when the records written differ from the records read, by the fingerprint taken while reading."""
_OTHER_FINGERPRINT = Rule(
    FINGERPRINT, None, "", "plan", "whose records written have another fingerprint than those that it read"
)
_COPIED = (
    Rule(
        *("lost_copy", "groups", "greatest(n_in - n_out, 0)"),
        *("record", "read, but lost, hidden or changed"),
        "{n_out} there, {n_in} read",
    ),
    Rule(
        *("added_copy", "groups", "greatest(n_out - n_in, 0)"),
        *("record", "there, but not read in this form"),
        "{n_out} there, {n_in} read",
    ),
)
"""The rules of lanes that copy; a record that readers see without equality deletes counts as written."""


def _first_horizon(_: Figures, claim: Claim) -> str:
    if claim.stamp_ms is not None:
        return ""
    return "the first delete horizons are not judged: the metadata file with delete.retention.ms is gone"


PROMISES = (
    Promise(
        number="C19",
        name="expect_only_expired_segments_dropped",
        lanes=("retain",),
        sentence="Every segment that is dropped is past retention.ms, or retention.bytes remain without it.",
        checked="dropped",
        rules=(
            Rule(
                *("not_expired", "segments", "goes AND NOT (is_old OR is_beyond)"),
                *("segment", "not past retention"),
                "{name}, {age}, is dropped; {later_bytes} bytes come after it; {limits}",
            ),
        ),
    ),
    Promise(
        number="C19",
        name="expect_oldest_segments_dropped",
        lanes=("retain",),
        sentence="Every record that stays is newer than all dropped records.",
        checked="staying",
        rules=(
            Rule(
                *("out_of_order", "segments", 'NOT goes AND coalesce("first" <= dropped_through, false)'),
                *("segment", "not dropped, with records perhaps older than dropped ones"),
                "{name} stays, although records up to offset {dropped_through} go",
            ),
        ),
    ),
    Promise(
        number="C4",
        name="expect_log_end_kept",
        lanes=("retain",),
        sentence="The record at the end of the log is kept.",
        checked="dropped",
        rules=(
            Rule(
                *("log_end_dropped", "segments", 'goes AND "last" >= kept_from'),
                *("segment", "dropped that may hold the log end"),
                "{name} is dropped",
            ),
        ),
    ),
    Promise(
        number="C30",
        name="expect_requested_records_gone",
        lanes=("erase",),
        sentence="No segment, written or left in place, holds a record that a request names.",
        checked="records_in",
        rules=(
            Rule(
                *("remaining", "remaining", "1"),
                *("record", "of a requested key, still there"),
                "the record is {lies}",
            ),
        ),
    ),
    Promise(
        number="C1, C30",
        name="expect_other_records_unchanged",
        lanes=("erase",),
        sentence=(
            "Every other record of the rewritten segments is kept with its offset, timestamp, headers, key, value and "
            "delete horizon, and no other record was written."
        ),
        checked="records_out",
        rules=(*_COPIED, _OTHER_FINGERPRINT),
    ),
    Promise(
        number="C30",
        name="expect_levels_kept",
        lanes=("erase",),
        sentence="Every record keeps its level, except that a tail may be written as a run.",
        checked="records_out",
        rules=(Rule("level_kept", "levels", "1", "record", "at another level", "level {a_level}, not {level_in}"),),
    ),
    Promise(
        number="C27",
        name="expect_same_visible_records",
        lanes=("convert",),
        sentence="Without the equality deletes, readers see exactly the records that they saw with them.",
        checked="records_in",
        rules=_COPIED,
    ),
    Promise(
        number="C13",
        name="expect_same_records",
        lanes=("merge",),
        sentence=(
            "The merged segments hold exactly the records read, with their offsets, timestamps, headers, keys, values "
            "and delete horizons."
        ),
        checked="records_in",
        rules=(*_COPIED, _OTHER_FINGERPRINT),
    ),
    Promise(
        number="C6, C14, C16",
        name="expect_one_record_per_key",
        lanes=CLEANINGS,
        sentence="Every key has exactly one record: in what was written, and in segments left in place.",
        checked="keys_out",
        rules=(
            Rule(
                *("repeated_key", "groups", f"{KEYED} AND n_out > 1"),
                *("key", "with more than one record"),
                "{there}",
            ),
            Rule(
                *("left_superseded", "left_behind", "superseded"),
                *("record", "left in place although a newer record supersedes it"),
                "a newer record of its key was read",
            ),
        ),
    ),
    Promise(
        number="C1, C2, C3",
        name="expect_newest_record_kept",
        lanes=CLEANINGS,
        sentence="The newest record of every key is kept, and no record that a newer record supersedes.",
        checked="keys_in",
        rules=(
            Rule(
                *("lost", "groups", f"{KNOWN} AND NOT in_tombstone AND NOT {KEPT}"),
                *("key", "without the newest record"),
                "{there}",
            ),
            Rule(
                *("stale", "groups", f"{KNOWN} AND n_out > 0 AND out_min < in_max AND out_min >= in_min"),
                *("key", "with a record that a newer one supersedes"),
                "offset {out_min} is there",
            ),
        ),
    ),
    Promise(
        number="C7, C8, C9",
        name="expect_tombstones_kept",
        lanes=CLEANINGS,
        sentence=(
            "Every tombstone that is the newest of its key is kept until its delete horizon has passed and no older "
            "record of its key can come back."
        ),
        checked="tombstones_in",
        rules=(
            Rule(
                *("tombstone_lost", "groups", f"{KNOWN} AND in_tombstone AND NOT {MAY} AND NOT {KEPT}"),
                *("tombstone", "removed too early"),
                "{there}; {stamp_in} was read",
            ),
        ),
    ),
    Promise(
        number="C9",
        name="expect_tombstones_gone",
        lanes=CLEANINGS,
        sentence=(
            "Every tombstone past its delete horizon is removed, unless a segment outside the plan may hold a lower "
            "offset."
        ),
        checked="tombstones_in",
        rules=(
            Rule(
                *("tombstone_left", "groups", f"{MAY} AND {KEPT}"),
                *("tombstone", "kept past the delete horizon"),
                "its delete horizon was {stamp_in}",
            ),
            # Removed tombstones are kept beside the topic unchanged, and nothing else goes there.
            Rule(
                "unburied",
                "groups",
                f"{MAY} AND NOT {KEPT} AND NOT coalesce(n_buried = 1 AND buried_mark = in_mark, false)",
                *("removed tombstone", "not kept unchanged among the removed tombstones"),
                f"{{n_buried}} at level {BURIED}",
            ),
            Rule(
                "buried_alive",
                "groups",
                f"CASE WHEN coalesce({MAY} AND NOT {KEPT}, false) THEN 0 ELSE n_buried END",
                *("record", "among the removed tombstones, but not removed"),
                f"{{n_buried}} at level {BURIED}",
            ),
            Rule(
                *("left_due", "left_behind", "due"),
                *("tombstone", "left in place, but due to be stamped or removed"),
                "its segment was left in place",
            ),
        ),
    ),
    Promise(
        number="C8, C9",
        name="expect_delete_horizons",
        lanes=CLEANINGS,
        sentence=(
            "A tombstone found clean for the first time gets its delete horizon; one that was stamped before keeps its "
            "delete horizon; no other record has one."
        ),
        checked="records_out",
        note=_first_horizon,
        rules=(
            Rule(
                "horizon",
                "groups",
                f"(({KEPT} AND NOT coalesce({MAY}, false)) "
                f"OR ({MARKER} AND n_out > 0 AND NOT coalesce({MARKER_MAY}, false))) "
                f"AND out_horizon IS DISTINCT FROM ({HORIZON})",
                *("record", "with a wrong delete horizon"),
                "{stamp_out}, not {stamp_expected}",
            ),
        ),
    ),
    Promise(
        number="C4",
        name="expect_log_end_kept",
        lanes=("erase", *CLEANINGS),
        sentence="The record at the end of the log is kept if it was read, whether or not a request names it.",
        checked="end_in",
        rules=(
            Rule(
                *("log_end", "groups", "end_in > 0 AND end_out = 0"),
                *("log end", "missing"),
                "not written",
            ),
            Rule(
                *("past_end", "groups", "n_in > 0 AND in_max > log_end"),
                *("key", "with a record past the log end that the plan names"),
                "the plan names {log_end}",
            ),
        ),
    ),
    Promise(
        number="C1",
        name="expect_records_unchanged",
        lanes=CLEANINGS,
        sentence=(
            "Every record has the offset, timestamp, headers, key and value with which it was read, and no other "
            "record was written."
        ),
        checked="records_out",
        rules=(
            Rule(
                *("changed", "groups", f"{KEPT} AND in_mark != out_mark"),
                *("record", "unlike what was read at the same offset"),
                "another timestamp, header, key, value or other column",
            ),
            Rule(
                "invented",
                "groups",
                f"{KEYED} AND n_out > 0 AND (n_in = 0 OR out_max > in_max OR out_min < in_min)",
                *("key", "with a record that was never read"),
                "{there}; read: offsets {in_min} to {in_max}",
            ),
            _OTHER_FINGERPRINT,
        ),
    ),
    Promise(
        number="C5",
        name="expect_no_null_keys",
        lanes=CLEANINGS,
        sentence="Every record without a key is quarantined unchanged, except the record at the end of the log.",
        checked="records_in",
        rules=(
            Rule(
                *("null_lost", "groups", f"CASE WHEN {COPIED} THEN greatest(least(n_in, 1) - n_out, 0) ELSE 0 END"),
                *("record", "without a key, lost or changed"),
                "{n_out} written unchanged, {n_in} read",
            ),
            Rule(
                *("null_added", "groups", f"CASE WHEN {COPIED} THEN {ADDED} ELSE 0 END"),
                *("record", "without a key, written but not read in this form"),
                "{n_out} there, {n_in} read",
            ),
            Rule(
                *("null_visible", "groups", f"CASE WHEN {COPIED} THEN n_level ELSE 0 END"),
                *("record", "without a key, not quarantined"),
                "level {a_level}",
            ),
        ),
    ),
    Promise(
        number="C10",
        name="expect_aborted_records_gone",
        lanes=CLEANINGS,
        sentence="Every transaction read has ended, and no record of an aborted transaction remains.",
        checked="records_in",
        rules=(
            Rule(
                *("aborted_left", "groups", f"CASE WHEN {ABORTED} THEN n_out ELSE 0 END"),
                *("record", "of an aborted transaction, still there"),
                "{there}",
            ),
            Rule(
                *("undecided", "groups", "n_undecided"),
                *("record", "of a transaction that has not ended"),
                "no marker ends its transaction",
            ),
            Rule(
                *("untold", "groups", "CASE WHEN NOT told THEN n_transaction ELSE 0 END"),
                *("record", "of a transaction, although the plan says that there is none"),
                "it was read",
            ),
        ),
    ),
    Promise(
        number="C10",
        name="expect_markers_kept",
        lanes=CLEANINGS,
        sentence=(
            "Every control record is kept unchanged until no record of its transaction remains and its delete horizon "
            "has passed."
        ),
        checked="control_in",
        rules=(
            Rule(
                *("marker_lost", "groups", f"{MARKER} AND n_out = 0 AND NOT coalesce({MARKER_MAY}, false)"),
                *("control record", "removed too early"),
                "not written; {stamp_in} was read",
            ),
            Rule(
                *("marker_left", "groups", f"{MARKER_MAY} AND n_out > 0"),
                *("marker", "kept past the delete horizon"),
                "its delete horizon was {stamp_in}",
            ),
            Rule(
                *("control_added", "groups", f"CASE WHEN {CONTROL} THEN {ADDED} ELSE 0 END"),
                *("control record", "written but not read in this form"),
                "{n_out} there, {n_in} read",
            ),
        ),
    ),
    Promise(
        number="C13 to C16",
        name="expect_output_level",
        lanes=("merge", *CLEANINGS),
        sentence="Every record written is at the level of its lane.",
        checked="records_out",
        rules=(
            Rule(
                *("level", "groups", f"CASE WHEN {COPIED} OR {ABORTED} THEN 0 ELSE n_level END"),
                *("record", "at the wrong level"),
                "level {a_level}, not {level_out}",
            ),
        ),
    ),
    Promise(
        number="C1",
        name="expect_distinct_offsets",
        lanes=CLEANINGS,
        sentence="No offset holds two different records.",
        checked="records_in",
        rules=(
            Rule(
                *("contradiction", "offsets", "differ"),
                *("offset", "with different records"),
                "{times} records, not all the same",
            ),
        ),
    ),
    Promise(
        number="C1",
        name="expect_one_topic_partition",
        lanes=EVERY_LANE,
        sentence="Every record read or written belongs to its topic partition and has an offset.",
        checked="records_in",
        rules=(
            Rule(
                *("foreign", "strangers", "1"),
                *("record", "of another topic partition, or without an offset"),
                "the plan is about {log}",
            ),
        ),
    ),
    Promise(
        number="C23",
        name="expect_whole_files",
        lanes=EVERY_LANE,
        sentence="Every data file read or written holds as many records as its manifest says.",
        checked="files",
        rules=(
            Rule(
                *("torn_file", "files", "told != found"),
                *("file", "whose manifest tells another number of records"),
                "record count {found} in {name}, not {told}",
            ),
        ),
    ),
    Promise(
        number="C24",
        name="expect_record_counts_to_add_up",
        lanes=EVERY_LANE,
        sentence="The record counts are those that the result states, and they add up.",
        checked="records_in",
        differences=count_differences,
        note=lambda figures, _: equation(figures),
    ),
    Promise(
        number="C4, C7 to C10, C24, C27",
        name="expect_figures_match",
        lanes=(*EVERY_LANE, "retain"),
        sentence=(
            "The figures with which the work was done are those of the table when it was planned, and of the files."
        ),
        checked="told",
        differences=figures_told_wrong,
    ),
)
"""All promises, in the order of the reports."""

OWN_SUITES = Promise(
    number="C23",
    name="expect_own_suites_met",
    lanes=(),
    sentence="The records that were written meet the suites of the table's owner.",
    checked="expectations",
)
"""What the suites of the table's owner say of a plan; the judge has no rule for it."""


def promises_for(lane: str) -> tuple[Promise, ...]:
    """The promises about `lane`."""
    return tuple(promise for promise in PROMISES if lane in promise.lanes)
