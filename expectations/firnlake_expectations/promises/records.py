"""Promises about the records that a cleaning keeps (lanes `clean`, `tier` and `full`)."""

from __future__ import annotations

from firnlake_expectations.claim import QUARANTINED
from firnlake_expectations.promises.promise import ADDED, CLEANINGS, COPIED, KEPT, KEYED, KNOWN, Promise, Rule

ONE_RECORD_PER_KEY = Promise(
    number="C6, C14, C16",
    name="expect_one_record_per_key",
    lanes=CLEANINGS,
    sentence="Every key has exactly one record: in what was written, and in segments left in place.",
    checked="keys_out",
    noun="key",
    rules=(
        Rule(
            *("repeated_key", "groups", f"{KEYED} AND n_out > 1"),
            *("key", "has more than one record", "have more than one record"),
            *("{there}", "one record"),
        ),
        Rule(
            *("left_superseded", "left_behind", "superseded"),
            *("record", "is in a segment left in place although a newer record supersedes it"),
            "are in segments left in place although newer records supersede them",
            "the record is in a segment left in place",
            "nothing: the plan read a newer record of its key",
        ),
    ),
)

NEWEST_RECORD_KEPT = Promise(
    number="C1, C2, C3",
    name="expect_newest_record_kept",
    lanes=CLEANINGS,
    sentence="The newest record of every key is kept, and no record that a newer record supersedes.",
    checked="keys_in",
    noun="key",
    rules=(
        Rule(
            *("lost", "groups", f"{KNOWN} AND NOT in_tombstone AND NOT {KEPT}"),
            *("key", "has lost its newest record", "have lost their newest record"),
            *("{there}", "offset {in_max}, the newest of its key"),
        ),
        Rule(
            *("stale", "groups", f"{KNOWN} AND n_out > 0 AND out_min < in_max AND out_min >= in_min"),
            *("key", "still has a record that a newer record supersedes"),
            "still have a record that a newer record supersedes",
            *("offset {out_min}", "nothing older than the {newest} at offset {in_max}"),
        ),
    ),
)

LOG_END_KEPT = Promise(
    number="C4",
    name="expect_log_end_kept",
    lanes=CLEANINGS,
    sentence="The record at the end of the log is kept if it was read.",
    checked="end_in",
    noun="log end",
    rules=(
        Rule(
            *("log_end", "groups", "end_in > 0 AND end_out = 0"),
            *("log end", "is missing", "are missing"),
            *("not written", "offset {log_end}, the end of the log"),
        ),
        Rule(
            *("past_end", "groups", "n_in > 0 AND in_max > log_end"),
            *("key", "has a record past the log end that the plan names"),
            "have a record past the log end that the plan names",
            *("offset {in_max}", "no offset above {log_end}"),
        ),
    ),
)

RECORDS_UNCHANGED = Promise(
    number="C1",
    name="expect_records_unchanged",
    lanes=CLEANINGS,
    sentence=(
        "Every record has the offset, timestamp, headers, key and value with which it was read, and no other record "
        "was written."
    ),
    checked="records_out",
    noun="record",
    rules=(
        Rule(
            *("changed", "groups", f"{KEPT} AND in_mark != out_mark"),
            *("record", "differs from what was read at its offset", "differ from what was read at their offset"),
            "another timestamp, header, key, value or other column",
            "the record read at offset {in_max}, bit for bit",
        ),
        Rule(
            *("invented", "groups", f"{KEYED} AND n_out > 0 AND (n_in = 0 OR out_max > in_max OR out_min < in_min)"),
            *("key", "has a record that was never read", "have a record that was never read"),
            *("{there}", "{known_offsets}"),
        ),
        Rule(
            *("fingerprint", None, ""),
            *("plan", "wrote records whose fingerprint differs from that of the records it read"),
            "wrote records whose fingerprints differ from those of the records they read",
        ),
    ),
)

NO_NULL_KEYS = Promise(
    number="C5",
    name="expect_no_null_keys",
    lanes=CLEANINGS,
    sentence="Every record without a key is quarantined unchanged, except the record at the end of the log.",
    checked="records_in",
    noun="record",
    rules=(
        Rule(
            *("null_lost", "groups", f"CASE WHEN {COPIED} THEN greatest(least(n_in, 1) - n_out, 0) ELSE 0 END"),
            *("record without a key", "is lost or changed", "are lost or changed"),
            *("not written unchanged", "quarantined bit for bit"),
        ),
        Rule(
            *("null_added", "groups", f"CASE WHEN {COPIED} THEN {ADDED} ELSE 0 END"),
            *("record without a key", "was written but not read in this form"),
            "were written but not read in this form",
            *("{written} in this form", "as many as were read: {n_in}"),
        ),
        Rule(
            *("null_visible", "groups", f"CASE WHEN {COPIED} THEN n_level ELSE 0 END"),
            *("record without a key", "is not quarantined", "are not quarantined"),
            *("level {a_level}", f"level {QUARANTINED}, quarantined"),
        ),
    ),
)

DISTINCT_OFFSETS = Promise(
    number="C1",
    name="expect_distinct_offsets",
    lanes=CLEANINGS,
    sentence="No offset holds two different records.",
    checked="records_in",
    noun="record",
    rules=(
        Rule(
            *("contradiction", "offsets", "differ"),
            *("offset", "holds different records", "hold different records"),
            *("{times} records, not all the same", "one record"),
        ),
    ),
)
