"""Promises about every lane, and the promise about a merge."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from firnlake_expectations.claim import Sample
from firnlake_expectations.promises import record_counts
from firnlake_expectations.promises.promise import CLEANINGS, CONTROL, EVERY_LANE, KEYED, MADE, Figures, Promise, Rule
from firnlake_expectations.promises.records import RECORDS_UNCHANGED
from firnlake_expectations.wording import count, log_name

if TYPE_CHECKING:
    from firnlake_expectations.claim import Claim


def _same_records(figures: Figures, _: Claim) -> str:
    repeats = figures["repeats_in"]
    twice = f", {count(repeats, 'repeated offset')} among them" if repeats else ""
    return f"{count(figures['records_out'], 'record')}, the same that were read{twice}."


SAME_RECORDS = Promise(
    number="C13",
    name="expect_same_records",
    lanes=("merge",),
    sentence=lambda claim: (
        f"The merged segments hold exactly the {count(claim.records_in, 'record')} read, with their "
        "offsets, timestamps, headers, keys, values and delete horizons."
    ),
    kept=_same_records,
    checked="records_in",
    rules=(
        Rule(
            *("lost_copy", "groups", "greatest(n_in - n_out, 0)"),
            *("record", "that was read is lost or changed", "that were read are lost or changed"),
            *("{written} unchanged", "as many as were read: {n_in}"),
        ),
        Rule(
            *("added_copy", "groups", "greatest(n_out - n_in, 0)"),
            *("record", "was written but not read in this form", "were written but not read in this form"),
            *("{written} in this form", "as many as were read: {n_in}"),
        ),
        RECORDS_UNCHANGED.rules[-1],
    ),
)

_LEVEL = (
    *("record", "is at the wrong level", "are at the wrong level"),
    *("level {a_level}", "level {level_out}"),
)

OUTPUT_LEVEL = Promise(
    number="C14, C15, C16",
    name="expect_output_level",
    lanes=CLEANINGS,
    sentence=lambda claim: (
        f"All {count(claim.records_out, 'record')} of {MADE[claim.lane]} are at level {claim.level_out}."
    ),
    kept=lambda figures, claim: f"{count(figures['records_out'], 'record')} at level {claim.level_out}.",
    checked="records_out",
    # The level of a record without a key has a promise of its own.
    rules=(Rule("level", "groups", f"CASE WHEN {KEYED} OR {CONTROL} THEN n_level END", *_LEVEL),),
)

COPIES_LEVEL = replace(
    OUTPUT_LEVEL, number="C13", lanes=("merge",), rules=(Rule("level_of_copies", "groups", "n_level", *_LEVEL),)
)

ONE_TOPIC_PARTITION = Promise(
    number="C1",
    name="expect_one_topic_partition",
    lanes=EVERY_LANE,
    sentence=lambda claim: f"Every record read or written belongs to {log_name(claim.topic, claim.partition)}.",
    kept=lambda figures, claim: (
        f"{count(figures['records_in'], 'record')} read, all from {log_name(claim.topic, claim.partition)}."
    ),
    checked="records_in",
    rules=(
        Rule(
            *("foreign", "strangers", "1"),
            *("record", "belongs to another topic partition or has no offset"),
            "belong to another topic partition or have no offset",
            *("another topic or partition, or no offset", "{log} and an offset"),
        ),
    ),
)

WHOLE_FILES = Promise(
    number="C23",
    name="expect_whole_files",
    lanes=EVERY_LANE,
    sentence=lambda claim: (
        f"Every data file of {log_name(claim.topic, claim.partition)} that was read or written holds as many records "
        "as its manifest says."
    ),
    kept=lambda figures, _: f"{count(figures['files'], 'file')} checked.",
    checked="files",
    rules=(
        Rule(
            *("torn_file", "files", "told != found"),
            *(
                "file",
                "does not hold as many records as its manifest says",
                "do not hold as many records as their manifests say",
            ),
            *("record count {found} in {name}", "record count {told}"),
        ),
    ),
)

RECORD_COUNTS = Promise(
    number="C24",
    name="expect_record_counts_to_add_up",
    lanes=EVERY_LANE,
    sentence=record_counts.sentence,
    kept=lambda figures, _: f"{record_counts.equation(figures)}.",
    checked="records_in",
    differences=record_counts.differences,
)


def _told_wrong(figures: Figures, claim: Claim) -> tuple[Sample, ...]:
    wrong = [(name, told, found) for name, told, found in claim.figures if told != found]
    seen = max(figures["unseen_from"] - 1, claim.seen_beside)
    if claim.seen_end is not None and claim.seen_end > seen:
        wrong.append(("last offset that readers see", str(claim.seen_end), str(seen)))
    return tuple(Sample(None, None, f"{name} {found}", f"{told} told") for name, told, found in wrong)


FIGURES_TOLD = Promise(
    number="C4, C7 to C10, C24, C27",
    name="expect_figures_as_told",
    lanes=(*EVERY_LANE, "retain"),
    sentence=lambda claim: (
        f"The {count(len(claim.figures), 'figure')} with which the work was done are those of the table when it was "
        "planned, and of the files."
    ),
    kept=lambda _, claim: f"{count(len(claim.figures), 'figure')} as told.",
    checked="told",
    differences=_told_wrong,
)
