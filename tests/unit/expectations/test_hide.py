"""C28: every way in which lane `hide` could go wrong is found by the judge: a record too many, one too few."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from firnlake_expectations.findings import rows
from firnlake_expectations.judge import judge
from firnlake_expectations.tables import AFTER, BEFORE, SHOWN
from tests.support.judged import CLAIM, KAFKAS, PAST, SCHEMA, Record, hiding, part, shown, table

if TYPE_CHECKING:
    from firnlake_expectations.claim import Claim
    from tests.support.judged import Records

OLD_A, NEW_A = Record(0, b"a", level=None), Record(4, b"a", level=1)
OLD_B, DELETED_B = Record(1, b"b", level=3), Record(5, b"b", None, level=1)
ALONE = Record(2, b"c", level=3)
NO_KEY = Record(3, None, level=None)
LATE_D, STAMPED_D = Record(6, b"d", level=None), Record(7, b"d", None, level=3, delete_horizon=PAST)
END = Record(8, b"z", level=0)

INPUTS = [OLD_A, OLD_B, ALONE, NO_KEY, NEW_A, DELETED_B, LATE_D, STAMPED_D, END]
HIDDEN = [OLD_A, OLD_B]
VISIBLE = [one for one in INPUTS if one not in HIDDEN]
HIDE = replace(
    CLAIM,
    lane="hide",
    level_out=0,
    log_end_offset=8,
    segments_in=0,
    segments_out=0,
    bytes_in=0,
    records_in=9,
    records_out=7,
    superseded=2,
    tombstones_removed=0,
    quarantined=0,
    segments_in_place=3,
)


def broken(inputs: Records, outputs: Records, claim: Claim = HIDE) -> dict[str, int]:
    """The rules that are broken, and how often, for a claim whose figures fit."""
    counted = replace(
        claim, records_in=len(inputs), records_out=len(outputs), superseded=max(0, len(inputs) - len(outputs))
    )
    parts = [shown(inputs, outputs)]
    (findings,) = judge(parts, SCHEMA, [counted], KAFKAS, fingerprints=[0], samples="full")
    assert findings.figures["keys_out"] == len({one.key for one in outputs} - {None})
    return dict(findings.broken)


def test_c28_what_is_superseded_is_hidden_and_nothing_else() -> None:
    assert broken(INPUTS, VISIBLE) == {}
    (findings,) = judge([shown(INPUTS, VISIBLE)], SCHEMA, [HIDE], KAFKAS, fingerprints=[0], samples="none")
    assert [row.broken for row in rows(HIDE, findings)] == [0] * len(rows(HIDE, findings))


@pytest.mark.parametrize("gone", [NEW_A, DELETED_B, ALONE, NO_KEY, STAMPED_D])
def test_c3_c5_the_newest_of_a_key_or_a_record_without_one_is_hidden(gone: Record) -> None:
    assert broken(INPUTS, [one for one in VISIBLE if one != gone])["not_superseded"] >= 1


def test_c4_the_log_end_is_hidden() -> None:
    assert broken(INPUTS, [one for one in VISIBLE if one != END]) == {"log_end_hidden": 1, "not_superseded": 1}


@pytest.mark.parametrize("superseded", [OLD_A, OLD_B])
def test_c28_a_superseded_record_is_still_visible(superseded: Record) -> None:
    assert broken(INPUTS, [*VISIBLE, superseded]) == {"still_visible": 1}


def test_c9_a_late_record_below_a_stamped_tombstone_may_stay_or_go() -> None:
    assert broken(INPUTS, [one for one in VISIBLE if one != LATE_D]) == {}
    copy = replace(STAMPED_D, level=0, delete_horizon=None)
    assert broken([*INPUTS, copy], [*VISIBLE, copy]) == {}
    assert broken([copy, *INPUTS], [copy, *VISIBLE]) == {}
    unstamped = [replace(one, delete_horizon=None) if one == STAMPED_D else one for one in INPUTS]
    visible = [replace(one, delete_horizon=None) if one == STAMPED_D else one for one in VISIBLE]
    assert broken(unstamped, visible) == {"still_visible": 1}


def test_c27_a_hidden_record_is_visible_again() -> None:
    assert broken([one for one in INPUTS if one != OLD_B], [*VISIBLE, OLD_B]) == {"unhidden": 1, "still_visible": 1}


def test_c2_a_copy_is_superseded_by_a_higher_offset_alone() -> None:
    assert broken([*INPUTS, NEW_A], [*VISIBLE, NEW_A]) == {}
    assert broken([*INPUTS, NEW_A], VISIBLE) == {"not_superseded": 1}
    assert broken([*INPUTS, OLD_A], VISIBLE) == {}


def test_c2_copies_of_which_another_one_is_hidden_are_as_before() -> None:
    held = part(SHOWN, table([*VISIBLE, NEW_A, NEW_A]))
    first, second = len(VISIBLE), len(VISIBLE) + 1
    swapped = replace(
        held, plan=0, name="one", listed=hiding("one", first, second), after=hiding("one", second, second + 1)
    )
    gone = replace(swapped, after=hiding("one", first, second + 1))
    claim = replace(HIDE, records_in=8, records_out=8, superseded=0, deleted=1)
    for parts, expected in (([swapped], {}), ([gone], {"not_superseded": 1})):
        (findings,) = judge(parts, SCHEMA, [claim], KAFKAS, fingerprints=[0], samples="full")
        assert dict(findings.broken) == expected
        assert (findings.figures["records_in"], findings.figures["deleted"]) == (8, 1)


@pytest.mark.parametrize("side", [BEFORE, AFTER])
def test_c23_two_sides_of_different_files_are_not_judged(side: str) -> None:
    with pytest.raises(ValueError, match=f"parts of .*{side}.* allowed: shown"):
        judge([shown(INPUTS, VISIBLE), part(side, table(INPUTS))], SCHEMA, [HIDE], KAFKAS, fingerprints=[0])
