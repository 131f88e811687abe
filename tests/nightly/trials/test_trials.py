"""Three seeds on every change, and nightly those that ever showed something unknown, beside the seeds of the date.

They look after C1 to C5, C22, C24 to C26, C29, C30 and C33.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, cast

import pytest

from tests.nightly.trials.checker import Violation
from tests.nightly.trials.files import Row
from tests.nightly.trials.gate import Fault, Held
from tests.nightly.trials.model import EMPTY, Branches, Line, appends, deletes, overwrites, unsettled, wrong
from tests.nightly.trials.trial import ENOUGH, Known, Told, known, prepared, trial, verdict
from tests.support.records import Record

if TYPE_CHECKING:
    from tests.support.faults import Request

ALWAYS: Final = ((2, "commit"),)
FOUND: Final = (
    (1, "processes"),
    (4, "history"),
    (33, "commit"),
    (44, "history"),
    (234, "commit"),
    (926, "history"),
    (73994913, "history"),
)
"""Tried at night: one of each kind, and those that failed once for a reason that nobody knew (add what you see)."""


@pytest.fixture(scope="module")
def _process_of_trials() -> Iterator[None]:
    with prepared():
        yield


@pytest.mark.usefixtures("_process_of_trials")
@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@pytest.mark.parametrize(("seed", "kind"), [*ALWAYS, *(pytest.param(*one, marks=pytest.mark.nightly) for one in FOUND)])
def test_a_seed_shows_nothing_that_is_not_known(seed: int, kind: str) -> None:
    strange = verdict([trial(seed, kind)], known()).strange
    assert strange == {}, f"python -m tests.nightly.trials --seeds {seed} --kinds {kind}"


A1, B1, A2 = (Record(offset, key, b"v%d" % offset) for offset, key in enumerate((b"a", b"b", b"a")))
GONE = Record(3, b"b", None)
NO_KEY = Record(4, None, b"x")
END = Record(5, b"c", b"v5")
LINE = appends(1, (A1, B1, A2, GONE, NO_KEY, END))(EMPTY)
WITHOUT_END = deletes(lambda one: one == END)(LINE)


def seen(*main: Record, quarantine: tuple[Record, ...] = (NO_KEY,), removed: tuple[Record, ...] = (GONE,)) -> Branches:
    return Branches(*([Row(one, 3, None) for one in rows] for rows in (main, quarantine, removed)))


CLEAN = seen(A2, END)
LOST = "a tombstone is gone and not kept"


@pytest.mark.parametrize(
    ("line", "branches", "said"),
    [
        (LINE, CLEAN, set()),
        # A record may come to the quarantine again.
        (LINE, seen(A2, END, quarantine=(NO_KEY, NO_KEY)), set()),
        (LINE, seen(END), {"the newest record of a key is gone"}),
        (LINE, seen(A2), {"the end of a log is gone", "the newest record of a key is gone"}),
        (LINE, seen(A2, END, removed=()), {LOST}),
        # A user has deleted the newest records of the partition.
        (WITHOUT_END, seen(A2, removed=()), set()),
        (LINE, seen(A2, A2, END), {"a record is seen twice"}),
        (LINE, seen(A2, END, A2._replace(value=b"y")), {"a record has changed"}),
        (LINE, seen(A2, END, A1._replace(offset=9)), {"a record is there that this line never had"}),
        (LINE, seen(A2, END, quarantine=()), {"a record without a key is neither in the table nor in quarantine"}),
    ],
)
def test_what_is_wrong_is_noticed_and_nothing_else(line: Line, branches: Branches, said: set[str]) -> None:
    assert {what for what, _ in wrong(line, branches, {})} == said


def test_what_is_left_over_is_noticed() -> None:
    assert list(unsettled(LINE, CLEAN, {}, 0)) == []
    assert [what for what, _ in unsettled(LINE, seen(A1, A2, END), {}, 0)] == ["a superseded record is still there"]
    to_erase = {(0, b"a"): 3}
    assert [what for what, _ in unsettled(LINE, CLEAN, to_erase, 0)] == ["a record that is to be erased is still there"]


def test_a_line_follows_its_users() -> None:
    assert overwrites(2, (A1,))(LINE).records == (A1,)
    assert (END in WITHOUT_END.records, WITHOUT_END.ends()) == (False, {})


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
    request = cast("Request", None)
    after_two, after_a_rollback = Held(request, Fault.AFTER_COMMITS, 2), Held(request, Fault.AFTER_ROLLBACK, 1)
    assert [after_two.waits_for(event) for event in ("rollback", "commit", "commit")] == [True, True, False]
    assert [after_a_rollback.waits_for(event) for event in ("commit", "rollback")] == [True, False]
