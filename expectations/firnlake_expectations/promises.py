"""The promises: an entry for each, with its number in the contract, its sentence, and its rules as SQL.

`erase` removes the requested records and no others (C30). `convert` hides by position deletes exactly the records that
equality deletes hide (C27). `retain` only drops whole segments, so it is judged from metadata alone (C19). To add a
promise, add an entry here and a test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from firnlake_expectations.case import BURIED, CLEANINGS, CONVERT, ERASE, EVERY_LANE, RETAIN
from firnlake_expectations.wording import FATES, fate

if TYPE_CHECKING:
    from firnlake_expectations.case import Claim


Figures = Mapping[str, int]
"""Figures measured for a plan, by name (see `judge`)."""


NOUNS: Mapping[str, str] = {
    "control_in": "control record",
    "dropped": "segment",
    "end_in": "log end",
    "files": "file",
    "keys_in": "key",
    "keys_out": "key",
    "records_in": "record",
    "records_out": "record",
    "staying": "segment",
    "told": "figure",
    "tombstones_in": "tombstone",
}
"""The noun for an item that is counted, by figure."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One way to break a promise.

    broken          SQL over a row of the view: the number of violations in it, or true for one; NULL counts as one
    noun, breach    noun for an item that breaks it, and what is wrong with one or with several of them
    found           template for a sample, filled with the columns of its row and the values that the judge adds
    view            the view it reads (see `views`), or `strangers` or `files`; empty: it is judged after all counting
    """

    broken: str
    noun: str
    breach: str
    found: str = ""
    view: str = "groups"


@dataclass(frozen=True, slots=True)
class Promise:
    """A statement that must hold for every plan of some lanes; Great Expectations checks it as an expectation.

    number      its number in the contract
    name        its name in stored results
    sentence    the statement
    checked     the figure that counts the items checked
    rules       the rules
    lanes       the lanes it applies to; by default those that clean
    differences   if it has no rules: the differences between figures measured and figures told, in words
    note        what else a reader should know about a plan, such as what can't be judged, and why; may be empty
    """

    number: str
    name: str
    sentence: str
    checked: str
    rules: tuple[Rule, ...] = ()
    lanes: tuple[str, ...] = CLEANINGS
    differences: Callable[[Figures, Claim], list[str]] | None = None
    note: Callable[[Figures, Claim], str] | None = None


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


def count_differences(measured: Figures, claim: Claim) -> list[str]:
    """The differences between claimed and measured counts, and the equations of either that do not add up."""
    wrong = [
        f"{measured[name]:,} {words} ({claim.counts[name]:,} claimed)"
        for name, words in (_COUNTED | _OTHERS).items()
        if measured[name] != claim.counts[name]
    ]
    return wrong + [
        f"{equation(figures)} as {side} ({figures['records_in']:,} on both sides)"
        for side, figures in (("measured", measured), ("claimed", claim.counts))
        if figures["records_in"] != _explained(figures)
    ]


def equation(figures: Figures) -> str:
    """`14 read = 9 kept + 3 superseded + 2 quarantined`."""
    sign = "=" if figures["records_in"] == _explained(figures) else "≠"
    # Of the terms that are 0, only what was read and kept is shown.
    shown = [(figures[name], words) for name, words in _COUNTED.items() if figures[name] or name.startswith("records_")]
    read, *terms = (f"{number:,} {fate(number, words)}" for number, words in shown)
    return f"{read} {sign} {' + '.join(terms)}"


def _explained(figures: Figures) -> int:
    return sum(figures[name] for name in _COUNTED if name != "records_in")


def figures_told_wrong(_: Figures, claim: Claim) -> list[str]:
    """The figures of `claim` that are told otherwise than the judge has found them."""
    return [f"{name} {found} ({told} told)" for name, told, found in claim.figures if told != found]


def _first_horizon(_: Figures, claim: Claim) -> str:
    if claim.stamp_ms is not None:
        return ""
    return "the first delete horizons are not judged: the metadata file with delete.retention.ms is gone"


FINGERPRINT = Rule("", "plan", "whose records written have another fingerprint than those that it read", view="")
"""Broken when the records written differ from the records read, by the fingerprint taken while reading."""
_COPIED = (
    Rule("greatest(n_in - n_out, 0)", "record", "read, but lost, hidden or changed", "{n_out} there, {n_in} read"),
    Rule("greatest(n_out - n_in, 0)", "record", "there, but not read in this form", "{n_out} there, {n_in} read"),
)
"""The rules of lanes that copy; a record that readers see without equality deletes counts as written."""


PROMISES = (
    Promise(
        number="C19",
        name="expect_only_expired_segments_dropped",
        lanes=(RETAIN,),
        sentence="Every segment that is dropped is past retention.ms, or retention.bytes remain without it.",
        checked="dropped",
        rules=(
            Rule(
                "goes AND NOT (is_old OR is_beyond)",
                "segment",
                "not past retention",
                "{name}, {age}, is dropped; {later_bytes} bytes come after it; {limits}",
                view="segments",
            ),
        ),
    ),
    Promise(
        number="C19",
        name="expect_oldest_segments_dropped",
        lanes=(RETAIN,),
        sentence="Every record that stays is newer than all dropped records.",
        checked="staying",
        rules=(
            Rule(
                'NOT goes AND coalesce("first" <= dropped_through, false)',
                "segment",
                "not dropped, with records perhaps older than dropped ones",
                "{name} stays, although records up to offset {dropped_through} go",
                view="segments",
            ),
        ),
    ),
    Promise(
        number="C4",
        name="expect_log_end_kept",
        lanes=(RETAIN,),
        sentence="The record at the end of the log is kept.",
        checked="dropped",
        rules=(
            Rule(
                'goes AND "last" >= kept_from',
                "segment",
                "dropped that may hold the log end",
                "{name} is dropped",
                view="segments",
            ),
        ),
    ),
    Promise(
        number="C30",
        name="expect_requested_records_gone",
        lanes=(ERASE,),
        sentence="No segment, written or left in place, holds a record that a request names.",
        checked="records_in",
        rules=(Rule("1", "record", "of a requested key, still there", "the record is {lies}", view="remaining"),),
    ),
    Promise(
        number="C1, C30",
        name="expect_other_records_unchanged",
        lanes=(ERASE,),
        sentence=(
            "Every other record of the rewritten segments is kept with its offset, timestamp, headers, key, value and "
            "delete horizon, and no other record was written."
        ),
        checked="records_out",
        rules=(*_COPIED, FINGERPRINT),
    ),
    Promise(
        number="C30",
        name="expect_levels_kept",
        lanes=(ERASE,),
        sentence="Every record keeps its level, except that a tail may be written as a run.",
        checked="records_out",
        rules=(Rule("1", "record", "at another level", "level {a_level}, not {level_in}", view="levels"),),
    ),
    Promise(
        number="C27",
        name="expect_same_visible_records",
        lanes=(CONVERT,),
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
        rules=(*_COPIED, FINGERPRINT),
    ),
    Promise(
        number="C6, C14, C16",
        name="expect_one_record_per_key",
        sentence="Every key has exactly one record: in what was written, and in segments left in place.",
        checked="keys_out",
        rules=(
            Rule("role = 'key' AND n_out > 1", "key", "with more than one record", "{there}"),
            Rule(
                "superseded",
                "record",
                "left in place although a newer record supersedes it",
                "a newer record of its key was read",
                view="left_behind",
            ),
        ),
    ),
    Promise(
        number="C1, C2, C3",
        name="expect_newest_record_kept",
        sentence="The newest record of every key is kept, and no record that a newer record supersedes.",
        checked="keys_in",
        rules=(
            Rule("was_read AND NOT in_tombstone AND NOT stays", "key", "without the newest record", "{there}"),
            Rule(
                "was_read AND n_out > 0 AND out_min < in_max AND out_min >= in_min",
                "key",
                "with a record that a newer one supersedes",
                "offset {out_min} is there",
            ),
        ),
    ),
    Promise(
        number="C7, C8, C9",
        name="expect_tombstones_kept",
        sentence=(
            "Every tombstone that is the newest of its key is kept until its delete horizon has passed and no older "
            "record of its key can come back."
        ),
        checked="tombstones_in",
        rules=(
            Rule(
                "was_read AND in_tombstone AND NOT may_go AND NOT stays",
                "tombstone",
                "removed too early",
                "{there}; {stamp_in} was read",
            ),
        ),
    ),
    Promise(
        number="C9",
        name="expect_tombstones_gone",
        sentence=(
            "Every tombstone past its delete horizon is removed, unless a segment outside the plan may hold a lower "
            "offset."
        ),
        checked="tombstones_in",
        rules=(
            Rule("may_go AND stays", "tombstone", "kept past the delete horizon", "its delete horizon was {stamp_in}"),
            # Removed tombstones are kept beside the topic unchanged, and nothing else goes there.
            Rule(
                "may_go AND NOT stays AND NOT coalesce(n_buried = 1 AND buried_mark = in_mark, false)",
                "removed tombstone",
                "not kept unchanged among the removed tombstones",
                f"{{n_buried}} at level {BURIED}",
            ),
            Rule(
                "CASE WHEN coalesce(may_go AND NOT stays, false) THEN 0 ELSE n_buried END",
                "record",
                "among the removed tombstones, but not removed",
                f"{{n_buried}} at level {BURIED}",
            ),
            Rule(
                "due",
                "tombstone",
                "left in place, but due to be stamped or removed",
                "its segment was left in place",
                view="left_behind",
            ),
        ),
    ),
    Promise(
        number="C8, C9",
        name="expect_delete_horizons",
        sentence=(
            "A tombstone found clean for the first time gets its delete horizon; one that was stamped before keeps its "
            "delete horizon; no other record has one."
        ),
        checked="records_out",
        note=_first_horizon,
        rules=(
            Rule(
                "((stays AND NOT coalesce(may_go, false)) "
                "OR (is_marker AND n_out > 0 AND NOT coalesce(marker_may_go, false))) "
                "AND out_horizon IS DISTINCT FROM expected_horizon",
                "record",
                "with a wrong delete horizon",
                "{stamp_out}, not {stamp_expected}",
            ),
        ),
    ),
    Promise(
        number="C4",
        name="expect_log_end_kept",
        lanes=(ERASE, *CLEANINGS),
        sentence="The record at the end of the log is kept if it was read, whether or not a request names it.",
        checked="end_in",
        rules=(
            Rule("end_in > 0 AND end_out = 0", "log end", "missing", "not written"),
            Rule(
                "n_in > 0 AND in_max > log_end",
                "key",
                "with a record past the log end that the plan names",
                "the plan names {log_end}",
            ),
        ),
    ),
    Promise(
        number="C1",
        name="expect_records_unchanged",
        sentence=(
            "Every record has the offset, timestamp, headers, key and value with which it was read, and no other "
            "record was written."
        ),
        checked="records_out",
        rules=(
            Rule(
                "stays AND in_mark != out_mark",
                "record",
                "unlike what was read at the same offset",
                "another timestamp, header, key, value or other column",
            ),
            Rule(
                "role = 'key' AND n_out > 0 AND (n_in = 0 OR out_max > in_max OR out_min < in_min)",
                "key",
                "with a record that was never read",
                "{there}; read: offsets {in_min} to {in_max}",
            ),
            FINGERPRINT,
        ),
    ),
    Promise(
        number="C5",
        name="expect_no_null_keys",
        sentence="Every record without a key is quarantined unchanged, except the record at the end of the log.",
        checked="records_in",
        rules=(
            Rule(
                "CASE WHEN role = 'copy' THEN greatest(least(n_in, 1) - n_out, 0) ELSE 0 END",
                "record",
                "without a key, lost or changed",
                "{n_out} written unchanged, {n_in} read",
            ),
            Rule(
                "CASE WHEN role = 'copy' THEN n_more ELSE 0 END",
                "record",
                "without a key, written but not read in this form",
                "{n_out} there, {n_in} read",
            ),
            Rule(
                "CASE WHEN role = 'copy' THEN n_level ELSE 0 END",
                "record",
                "without a key, not quarantined",
                "level {a_level}",
            ),
        ),
    ),
    Promise(
        number="C10",
        name="expect_aborted_records_gone",
        sentence="Every transaction read has ended, and no record of an aborted transaction remains.",
        checked="records_in",
        rules=(
            Rule(
                "CASE WHEN role = 'aborted' THEN n_out ELSE 0 END",
                "record",
                "of an aborted transaction, still there",
                "{there}",
            ),
            Rule("n_undecided", "record", "of a transaction that has not ended", "no marker ends its transaction"),
        ),
    ),
    Promise(
        number="C10",
        name="expect_markers_kept",
        sentence=(
            "Every control record is kept unchanged until no record of its transaction remains and its delete horizon "
            "has passed."
        ),
        checked="control_in",
        rules=(
            Rule(
                "is_marker AND n_out = 0 AND NOT coalesce(marker_may_go, false)",
                "control record",
                "removed too early",
                "not written; {stamp_in} was read",
            ),
            Rule(
                "marker_may_go AND n_out > 0",
                "marker",
                "kept past the delete horizon",
                "its delete horizon was {stamp_in}",
            ),
            Rule(
                "CASE WHEN role = 'control' THEN n_more ELSE 0 END",
                "control record",
                "written but not read in this form",
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
                "CASE WHEN role = 'copy' OR role = 'aborted' THEN 0 ELSE n_level END",
                "record",
                "at the wrong level",
                "level {a_level}, not {level_out}",
            ),
        ),
    ),
    Promise(
        number="C1",
        name="expect_distinct_offsets",
        sentence="No offset holds two different records.",
        checked="records_in",
        rules=(
            Rule("differ", "offset", "with different records", "{times} records, not all the same", view="offsets"),
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
                "1",
                "record",
                "of another topic partition, or without an offset",
                "the plan is about {log}",
                view="strangers",
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
                "told != found",
                "file",
                "whose manifest tells another number of records",
                "record count {found} in {name}, not {told}",
                view="files",
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
        lanes=(*EVERY_LANE, RETAIN),
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
    """The promises about `lane`. Raises ValueError if there are none: nothing would be judged."""
    own = tuple(promise for promise in PROMISES if lane in promise.lanes)
    if not own:
        raise ValueError(f"there is no promise about lane {lane}")
    return own
