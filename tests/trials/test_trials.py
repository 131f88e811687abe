"""Every seed that has ever shown something unknown; `make nightly` tries seeds of the date beside these."""

from collections.abc import Iterator
from typing import Final

import pytest

from tests.trials.trial import prepared, trial
from tests.trials.violation import explanation, known

pytestmark = pytest.mark.nightly

FOUND: Final = (
    *((33, "commit"), (13, "neighbours"), (1068, "store"), (234, "commit"), (427, "store"), (9, "erasure")),
    (926, "history"),
)
"""Seeds and kinds that failed once for a reason that nobody knew: whoever sees one adds it here."""


@pytest.fixture(scope="module", autouse=True)
def _process_of_trials() -> Iterator[None]:
    with prepared():
        yield


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@pytest.mark.parametrize(("seed", "kind"), FOUND)
def test_a_seed_shows_nothing_that_is_not_known(seed: int, kind: str) -> None:
    told = trial(seed, kind)
    strange = [str(one) for one in told.violations if explanation(known(), kind, one) is None]
    assert strange == [], f"python -m tests.trials --seeds {seed} --kinds {kind}"
