"""Seeds of today, which another day repeats by its date, and every seed that has ever shown something unknown."""

import os
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Final

import pytest

from tests.trials.kinds import KINDS
from tests.trials.trial import kind_of, prepared, trial
from tests.trials.violation import explanation, known

pytestmark = pytest.mark.nightly

SEEDS: Final = 10
DATE: Final = "FIRN_TRIALS_DATE"
"""The variable that repeats the seeds of a day: 2026-11-24."""
FOUND: Final = (
    *((33, "commit"), (13, "neighbours"), (1068, "store"), (234, "commit"), (427, "store"), (9, "erasure")),
    (926, "history"),
)
"""Seeds and kinds that failed once for a reason that nobody knew: whoever sees one adds it here."""


def seeds_of(day: date) -> list[tuple[int, str]]:
    """The seeds of a day, each with the kind that it draws."""
    first = day.toordinal() * SEEDS
    return [(seed, kind_of(seed, list(KINDS))) for seed in range(first, first + SEEDS)]


def today() -> date:
    """The date in the environment, or else the machine's in UTC."""
    text = os.environ.get(DATE)
    return date.fromisoformat(text) if text else datetime.now(UTC).date()


@pytest.fixture(scope="module", autouse=True)
def _process_of_trials() -> Iterator[None]:
    with prepared():
        yield


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@pytest.mark.parametrize(("seed", "kind"), [*seeds_of(today()), *FOUND])
def test_a_seed_shows_nothing_that_is_not_known(seed: int, kind: str) -> None:
    told = trial(seed, kind)
    strange = [str(one) for one in told.violations if explanation(known(), kind, one) is None]
    assert strange == [], f"python -m tests.trials --seeds {seed} --kinds {kind}"


def test_a_day_has_its_seeds() -> None:
    assert seeds_of(date(2026, 11, 24)) == seeds_of(date(2026, 11, 24))
    assert {seed for seed, _ in seeds_of(date(2026, 11, 24))}.isdisjoint(s for s, _ in seeds_of(date(2026, 11, 25)))
