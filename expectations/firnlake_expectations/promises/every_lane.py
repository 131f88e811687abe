"""Promises about every lane, and the promise about a merge."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from firnlake_expectations.claim import Sample
from firnlake_expectations.promises.promise import CLEANINGS, CONTROL, EVERY_LANE, KEYED, Figures, Promise, Rule
from firnlake_expectations.promises.records import RECORDS_UNCHANGED
from firnlake_expectations.wording import FATES, fate

if TYPE_CHECKING:
    from firnlake_expectations.claim import Claim


SAME_RECORDS = Promise(
    number="C13",
    name="expect_same_records",
    lanes=("merge",),
    sentence=(
        "The merged segments hold exactly the records read, with their offsets, timestamps, headers, keys, values and "
        "delete horizons."
    ),
    checked="records_in",
    noun="record",
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
    sentence="Every record written is at the level of its lane.",
    checked="records_out",
    noun="record",
    rules=(Rule("level", "groups", f"CASE WHEN {KEYED} OR {CONTROL} THEN n_level ELSE 0 END", *_LEVEL),),
)

COPIES_LEVEL = replace(
    OUTPUT_LEVEL, number="C13", lanes=("merge",), rules=(Rule("level_of_copies", "groups", "n_level", *_LEVEL),)
)

ONE_TOPIC_PARTITION = Promise(
    number="C1",
    name="expect_one_topic_partition",
    lanes=EVERY_LANE,
    sentence="Every record read or written belongs to its topic partition and has an offset.",
    checked="records_in",
    noun="record",
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
    sentence="Every data file read or written holds as many records as its manifest says.",
    checked="files",
    noun="file",
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

_COUNTED = {
    "records_in": "records read",
    "records_out": "records kept",
    **{name: words for name, words in FATES.items() if name != "expired"},
}

_OTHERS = {
    "repeated": "repeated records among the superseded",
    "restored": "restored tombstones among those read",
    "deleted": "records that other writers deleted, in addition to those read",
}
"""Figures that are not terms of the sum."""


def _differences(measured: Figures, claim: Claim) -> tuple[Sample, ...]:
    """The differences between claimed and measured counts, and the equations of either that do not add up."""
    claimed = claim.to_dict()
    wrong = [
        Sample(None, None, f"{measured[name]:,} {words}", f"{claimed[name]:,} claimed")
        for name, words in (_COUNTED | _OTHERS).items()
        if measured[name] != claimed[name]
    ]
    wrong += [
        Sample(None, None, f"{_equation(figures)} as {side}", f"{figures['records_in']:,} on both sides")
        for side, figures in (("measured", measured), ("claimed", claimed))
        if figures["records_in"] != _explained(figures)
    ]
    return tuple(wrong)


def _equation(figures: Figures) -> str:
    """`14 read = 9 kept + 3 superseded + 2 quarantined`."""
    sign = "=" if figures["records_in"] == _explained(figures) else "≠"
    # Of the terms that are 0, only what was read and kept is shown.
    shown = [(figures[name], words) for name, words in _COUNTED.items() if figures[name] or name.startswith("records_")]
    read, *terms = (f"{number:,} {fate(number, words)}" for number, words in shown)
    return f"{read} {sign} {' + '.join(terms)}"


def _explained(figures: Figures) -> int:
    return sum(figures[name] for name in _COUNTED if name != "records_in")


RECORD_COUNTS = Promise(
    number="C24",
    name="expect_record_counts_to_add_up",
    lanes=EVERY_LANE,
    sentence="The record counts are those that the result states, and they add up.",
    checked="records_in",
    noun="record",
    differences=_differences,
    note=lambda figures, _: _equation(figures),
)


def _told_wrong(_: Figures, claim: Claim) -> tuple[Sample, ...]:
    wrong = ((name, told, found) for name, told, found in claim.figures if told != found)
    return tuple(Sample(None, None, f"{name} {found}", f"{told} told") for name, told, found in wrong)


FIGURES_TOLD = Promise(
    number="C4, C7 to C10, C24, C27",
    name="expect_figures_match",
    lanes=(*EVERY_LANE, "retain"),
    sentence=("The figures with which the work was done are those of the table when it was planned, and of the files."),
    checked="told",
    noun="figure",
    differences=_told_wrong,
)
