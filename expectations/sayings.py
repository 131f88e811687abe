"""How a broken rule is said: in a sentence with its count, and for a sample in what was found and expected."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from expectations.claim import BURIED, QUARANTINED
from expectations.wording import count, log_name, moment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from expectations.claim import Claim


@dataclass(frozen=True, slots=True)
class Saying:
    """`noun` and the verb phrases for `one` and `many` of it; `found` and `expected` are filled for a sample
    with the columns of its group and what `details` adds to them."""

    noun: str
    one: str
    many: str
    found: str = ""
    expected: str = ""


SAYINGS = {
    "repeated_key": Saying("key", "has more than one record", "have more than one record", "{there}", "one record"),
    "lost": Saying(
        "key",
        "has lost its newest record",
        "have lost their newest record",
        "{there}",
        "offset {in_max}, the newest of its key",
    ),
    "stale": Saying(
        "key",
        "still has a record that a newer one supersedes",
        "still have a record that a newer one supersedes",
        "offset {out_min}",
        "nothing older than the {newest} at offset {in_max}",
    ),
    "tombstone_lost": Saying(
        "tombstone",
        "is gone too early",
        "are gone too early",
        "{there}",
        "the tombstone at offset {in_max}: {reason}",
    ),
    "tombstone_left": Saying(
        "tombstone",
        "is still there past its delete horizon",
        "are still there past their delete horizon",
        "the tombstone at offset {in_max}",
        "nothing: its delete horizon was {stamp_in}",
    ),
    "horizon": Saying(
        "record",
        "has a wrong delete horizon",
        "have a wrong delete horizon",
        "{stamp_out}",
        "{stamp_expected}",
    ),
    "log_end": Saying("log end", "is missing", "are missing", "not written", "offset {log_end}, the end of the log"),
    "past_end": Saying(
        "key",
        "has a record past the log end that the plan names",
        "have a record past the log end that the plan names",
        "offset {in_max}",
        "no offset above {log_end}",
    ),
    "changed": Saying(
        "record",
        "is not what was read at its offset",
        "are not what was read at their offset",
        "another timestamp, header, key, value or other column",
        "the record read at offset {in_max}, bit for bit",
    ),
    "invented": Saying(
        "key",
        "has a record that was never read",
        "have a record that was never read",
        "{there}",
        "{known_offsets}",
    ),
    "null_lost": Saying(
        "record without a key",
        "is lost or changed",
        "are lost or changed",
        "not written as it was read",
        "quarantined bit for bit",
    ),
    "null_added": Saying(
        "record without a key",
        "is written that was not read like this",
        "are written that were not read like this",
        "{written} like this",
        "as many as were read: {n_in}",
    ),
    "null_visible": Saying(
        "record without a key",
        "is not quarantined",
        "are not quarantined",
        "level {a_level}",
        f"level {QUARANTINED}, quarantined",
    ),
    "null_key": Saying("record", "has no key", "have no key"),
    "contradiction": Saying("offset", "holds different records", "hold different records"),
    "unburied": Saying(
        "removed tombstone",
        "is not kept beside the topic as it was read",
        "are not kept beside the topic as they were read",
        "{buried} at level {level_buried}",
        "the tombstone of offset {in_max} at level {level_buried}",
    ),
    "buried_alive": Saying(
        "record",
        "is kept beside the topic that was not removed",
        "are kept beside the topic that were not removed",
        "{buried} at level {level_buried}",
        "none",
    ),
    "aborted_left": Saying(
        "record of an aborted transaction",
        "is still there",
        "are still there",
        "the record at offset {out_max}",
        "nothing: its transaction was aborted",
    ),
    "undecided": Saying(
        "record",
        "is part of a transaction that has not ended",
        "are part of transactions that have not ended",
        "offset {in_max}, of a transaction without a marker",
        "records of ended transactions only",
    ),
    "untold": Saying(
        "record",
        "is part of a transaction, of which the plan knows nothing",
        "are part of transactions, of which the plan knows nothing",
        "offset {in_max}, of a transaction",
        "no such record, or a plan that tells of transactions",
    ),
    "marker_lost": Saying(
        "control record",
        "is gone too early",
        "are gone too early",
        "nothing written",
        "the control record at offset {in_max}, as it was read",
    ),
    "marker_left": Saying(
        "marker",
        "is still there past its delete horizon",
        "are still there past their delete horizon",
        "the marker at offset {in_max}",
        "nothing: its delete horizon was {stamp_in}",
    ),
    "control_added": Saying(
        "control record",
        "is written that was not read like this",
        "are written that were not read like this",
        "{written} like this",
        "as it was read, once",
    ),
    "lost_copy": Saying(
        "record",
        "was read and is not written as it was",
        "were read and are not written as they were",
        "{written} as it was",
        "as many as were read: {n_in}",
    ),
    "added_copy": Saying(
        "record",
        "is written that was not read like this",
        "are written that were not read like this",
        "{written} like this",
        "as many as were read: {n_in}",
    ),
    "level": Saying("record", "is at a wrong level", "are at a wrong level", "level {a_level}", "level {level_out}"),
    "left_superseded": Saying(
        "record",
        "is in a segment left in place though a newer one supersedes it",
        "are in segments left in place though newer ones supersede them",
    ),
    "left_due": Saying(
        "tombstone",
        "is in a segment left in place and had to be stamped or removed",
        "are in segments left in place and had to be stamped or removed",
    ),
    "checksum": Saying(
        "job",
        "has written other records than it has read, by the checksum that it took as it read",
        "have written other records than they have read, by the checksums that they took as they read",
    ),
    "foreign": Saying(
        "record",
        "is of another topic partition or has no offset",
        "are of another topic partition or have no offset",
        "another topic or partition, or no offset",
        "{log} and an offset",
    ),
}


def say(broken: Mapping[str, int]) -> str:
    """Broken rules and their counts as a sentence: `1 key has more than one record; 2 tombstones are …`."""
    parts = []
    for rule, number in broken.items():
        saying = SAYINGS[rule]
        # "record without a key" has its plural at its first word.
        head, *tail = re.split(r"(?= without| of)", saying.noun, maxsplit=1)
        noun = count(number, head) + "".join(tail)
        parts.append(f"{noun} {saying.one if number == 1 else saying.many}")
    return "; ".join(parts) + "."


def details(group: Mapping[str, Any], claim: Claim) -> dict[str, Any]:
    """What the templates of the sayings can name: the group's columns and what follows from them."""
    written, low, high = group["n_out"], group["out_min"], group["out_max"]
    there = (
        "no record of this key"
        if written == 0
        else f"offset {high} only"
        if written == 1
        else f"{written} records, offsets {low} to {high}"
    )
    read = f"nothing but offsets {group['in_min']} to {group['in_max']} was read"
    return {
        **group,
        "there": there,
        "written": f"{count(written, 'record')} written",
        "known_offsets": read if group["n_in"] else "nothing: the key was not read",
        "newest": "tombstone" if group["in_tombstone"] else "record",
        "reason": _why_it_stays(group, claim),
        "stamp_in": _stamp(group["in_horizon"]),
        "stamp_out": _stamp(group["out_horizon"]),
        "stamp_expected": _stamp(group["expected_horizon"]),
        "log": log_name(claim.topic, claim.partition),
        "log_end": claim.log_end_offset,
        "level_out": claim.level_out,
        "level_buried": BURIED,
        "buried": count(group["n_buried"], "record"),
    }


def _stamp(micros: int | None) -> str:
    return "no delete horizon" if micros is None else moment(micros // 1000)


def _why_it_stays(group: Mapping[str, Any], claim: Claim) -> str:
    if group["in_max"] == claim.log_end_offset:
        return "it is the end of the log"
    if group["in_min"] != group["in_max"]:
        return "it must outlive the older records of its key"
    if group["in_horizon"] is None:
        return "no earlier cleaning has stamped it"
    if group["in_horizon"] > claim.now_ms * 1000:
        return f"its delete horizon is {_stamp(group['in_horizon'])}"
    return f"a segment outside the plan may hold older offsets, from {claim.clean_below} on"
