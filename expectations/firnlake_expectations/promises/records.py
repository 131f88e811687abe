"""Promises about the records that a cleaning keeps (lanes `clean`, `tier` and `full`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firnlake_expectations.claim import QUARANTINED
from firnlake_expectations.promises.promise import (
    ADDED,
    CLEANINGS,
    COPIED,
    KEPT,
    KEYED,
    KNOWN,
    MADE,
    Figures,
    Promise,
    Rule,
)
from firnlake_expectations.wording import count, log_name

if TYPE_CHECKING:
    from firnlake_expectations.claim import Claim


def _one_record(claim: Claim) -> str:
    log = log_name(claim.topic, claim.partition)
    keys, records = count(claim.records_out, "key"), count(claim.records_out, "record")
    left = (
        f"; none of the {count(claim.records_in_place, 'record')} in segments left in place has a key that was read"
        if claim.segments_in_place
        else ""
    )
    return f"Every key of {log} has exactly one record in {MADE[claim.lane]}: {keys}, {records}{left}."


def _no_null_keys(claim: Claim) -> str:
    log = log_name(claim.topic, claim.partition)
    if claim.quarantined == 0:
        return f"Only the last record of {log} may have no key, so none is quarantined."
    records = count(claim.quarantined, "record")
    return f"No record without a key stays in {log}, except its last record: {records} quarantined, unchanged."


def _no_null_keys_kept(figures: Figures, _: Claim) -> str:
    quarantined = figures["quarantined"]
    if quarantined == 0:
        return "Every record has a key."
    return f"{count(quarantined, 'record')} without a key, quarantined and unchanged."


def _log_end_kept(figures: Figures, claim: Claim) -> str:
    end = f"Offset {claim.log_end_offset:,}"
    return f"{end} was read and is kept." if figures["end_in"] else f"{end} is not among the records read."


def _distinct_offsets(figures: Figures, _: Claim) -> str:
    read, repeated = count(figures["records_in"], "record"), figures["repeated"]
    if repeated == 0:
        return f"{read} read, each with its own offset."
    return f"{read} read, {repeated:,} of them identical to another record at the same offset."


ONE_RECORD_PER_KEY = Promise(
    number="C6, C14, C16",
    name="expect_one_record_per_key",
    lanes=CLEANINGS,
    sentence=_one_record,
    kept=lambda figures, _: f"{count(figures['keys_out'], 'key')}, {count(figures['records_out'], 'record')}.",
    checked="keys_out",
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
    sentence=lambda claim: (
        f"Of {count(claim.records_in, 'record')} read, the plan keeps the newest of every key, and none of "
        f"the {count(claim.superseded, 'record')} that a newer record supersedes."
    ),
    kept=lambda figures, _: (
        f"{count(figures['keys_in'], 'key')} read, {count(figures['superseded'], 'older record')} removed."
    ),
    checked="keys_in",
    rules=(
        Rule(
            *("lost", "groups", f"{KNOWN} AND NOT in_tombstone AND NOT {KEPT}"),
            *("key", "has lost its newest record", "have lost their newest record"),
            *("{there}", "offset {in_max}, the newest of its key"),
        ),
        Rule(
            *("stale", "groups", f"{KNOWN} AND out_min < in_max AND out_min >= in_min"),
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
    sentence=lambda claim: (
        f"The end of the log {log_name(claim.topic, claim.partition)}, offset {claim.log_end_offset:,}, is kept if "
        "it was read."
    ),
    kept=_log_end_kept,
    checked="end_in",
    rules=(
        Rule(
            *("log_end", "groups", "end_in > 0 AND end_out = 0"),
            *("log end", "is missing", "are missing"),
            *("not written", "offset {log_end}, the end of the log"),
        ),
        Rule(
            *("past_end", "groups", "in_max > log_end"),
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
    sentence=lambda claim: (
        f"All {count(claim.records_out, 'record')} kept have the offset, timestamp, headers, key and value with which "
        "they were read, and no other record was written."
    ),
    kept=lambda figures, _: f"The newest records of {count(figures['keys_out'], 'key')} are unchanged; none is new.",
    checked="records_out",
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
    sentence=_no_null_keys,
    kept=_no_null_keys_kept,
    checked="records_in",
    rules=(
        Rule(
            *("null_lost", "groups", f"CASE WHEN {COPIED} THEN greatest(least(n_in, 1) - n_out, 0) END"),
            *("record without a key", "is lost or changed", "are lost or changed"),
            *("not written unchanged", "quarantined bit for bit"),
        ),
        Rule(
            *("null_added", "groups", f"CASE WHEN {COPIED} THEN {ADDED} END"),
            *("record without a key", "was written but not read in this form"),
            "were written but not read in this form",
            *("{written} in this form", "as many as were read: {n_in}"),
        ),
        Rule(
            *("null_visible", "groups", f"CASE WHEN {COPIED} THEN n_level END"),
            *("record without a key", "is not quarantined", "are not quarantined"),
            *("level {a_level}", f"level {QUARANTINED}, quarantined"),
        ),
    ),
)

DISTINCT_OFFSETS = Promise(
    number="C1",
    name="expect_distinct_offsets",
    lanes=CLEANINGS,
    sentence=lambda claim: f"No offset of {log_name(claim.topic, claim.partition)} holds two different records.",
    kept=_distinct_offsets,
    checked="records_in",
    rules=(
        Rule(
            *("contradiction", "offsets", "differ"),
            *("offset", "holds different records", "hold different records"),
            *("{times} records, not all the same", "one record"),
        ),
    ),
)
