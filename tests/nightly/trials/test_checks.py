"""The checks of the trials notice what is wrong, and nothing else."""

from typing import TYPE_CHECKING, cast

import pytest

from tests.nightly.trials.content import Branches, unsettled, wrong
from tests.nightly.trials.faults import Fate
from tests.nightly.trials.files import Row
from tests.nightly.trials.gate import Held
from tests.nightly.trials.lines import EMPTY, appends, deletes, overwrites
from tests.nightly.trials.records import Record
from tests.nightly.trials.summary import ENOUGH, verdict
from tests.nightly.trials.trial import Told
from tests.nightly.trials.violation import Known, Violation

if TYPE_CHECKING:
    from tests.support.faults import Request

A1, B1, A2 = (Record(0, offset, key, b"v%d" % offset, 0) for offset, key in enumerate((b"a", b"b", b"a")))
GONE = Record(0, 3, b"b", None, 0)
NO_KEY = Record(0, 4, None, b"x", 0)
END = Record(0, 5, b"c", b"v5", 0)
LINE = appends(1, (A1, B1, A2, GONE, NO_KEY, END)).change(EMPTY)


def seen(*main: Record, quarantine: tuple[Record, ...] = (), removed: tuple[Record, ...] = ()) -> Branches:
    return Branches(*([Row(one, 3, None) for one in rows] for rows in (main, quarantine, removed)))


CLEAN = seen(A2, END, quarantine=(NO_KEY,), removed=(GONE,))


def test_what_is_clean_is_right() -> None:
    assert list(wrong(LINE, CLEAN, {})) == []
    assert list(unsettled(LINE, CLEAN, {}, 0)) == []


@pytest.mark.parametrize(
    ("branches", "what"),
    [
        (seen(END, quarantine=(NO_KEY,), removed=(GONE,)), "the newest record of a key is gone"),
        (seen(A2, quarantine=(NO_KEY,), removed=(GONE,)), "the end of a log is gone"),
        (seen(A2, END, quarantine=(NO_KEY,)), "a tombstone is gone and not kept"),
        (seen(A2, A2, END, quarantine=(NO_KEY,), removed=(GONE,)), "a record is seen twice"),
        (seen(A2._replace(value=b"y"), END, A2, quarantine=(NO_KEY,), removed=(GONE,)), "a record has changed"),
        (
            seen(A2, END, A1._replace(offset=9), quarantine=(NO_KEY,), removed=(GONE,)),
            "a record is there that this line never had",
        ),
        (seen(A2, END, removed=(GONE,)), "a record without a key is neither in the table nor in quarantine"),
    ],
)
def test_what_is_wrong_is_noticed(branches: Branches, what: str) -> None:
    assert what in [one for one, _ in wrong(LINE, branches, {})]


def test_what_is_left_over_is_noticed() -> None:
    left = seen(A1, A2, END, quarantine=(NO_KEY,), removed=(GONE,))
    assert [what for what, _ in unsettled(LINE, left, {}, 0)] == ["a superseded record is still there"]
    assert {what for what, _ in unsettled(LINE, CLEAN, {(0, b"a"): 3}, 0)} == {
        "a record that is to be erased is still there"
    }


def test_a_record_may_come_to_the_quarantine_again() -> None:
    again = seen(A2, END, quarantine=(NO_KEY, NO_KEY), removed=(GONE,))
    assert list(wrong(LINE, again, {})) == []


def test_a_tombstone_of_a_partition_whose_newest_records_were_deleted_may_be_forgotten() -> None:
    forgotten = seen(A2, quarantine=(NO_KEY,))
    assert "a tombstone is gone and not kept" in [what for what, _ in wrong(LINE, forgotten, {})]
    without = deletes(lambda one: one == END).change(LINE)
    assert list(wrong(without, forgotten, {})) == []


def test_a_line_follows_its_users() -> None:
    assert overwrites(2, (A1,)).change(LINE).records == (A1,)
    without = deletes(lambda one: one == END).change(LINE)
    assert (END in without.records, without.ends()) == (False, {})


REQUEST = cast("Request", None)
AFTER_TWO, AFTER_A_ROLLBACK = Held(REQUEST, Fate.AFTER_COMMITS, 2), Held(REQUEST, Fate.AFTER_ROLLBACK, 1)
LISTED = Known("I4", ("history", "processes"), "the newest record .* gone", "a defect")
SHOWS = Violation("I4", "the newest record of a key is gone", "offset 3")


def test_a_run_fails_on_the_unknown_and_on_what_no_longer_shows() -> None:
    assert verdict([Told(0, "history", [SHOWS])], [LISTED]).passed
    assert not verdict([Told(0, "commit", [SHOWS])], [LISTED]).passed
    assert not verdict([Told(0, "history", [Violation("I4", f"{SHOWS.what} twice")])], [LISTED]).passed
    quiet = [Told(seed, kind) for kind in LISTED.kinds for seed in range(ENOUGH)]
    assert verdict(quiet[1:], [LISTED]).passed
    assert not verdict(quiet, [LISTED]).passed


def test_a_request_is_held_until_what_it_waits_for() -> None:
    assert [AFTER_TWO.waits_for(event) for event in ("rollback", "commit", "commit")] == [True, True, False]
    assert [AFTER_A_ROLLBACK.waits_for(event) for event in ("commit", "rollback")] == [True, False]
