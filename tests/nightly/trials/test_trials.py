"""Three seeds on every change, and nightly those that ever showed something unknown, beside the seeds of the date.

They look after C1 to C5, C22, C24 to C26, C29, C30 and C33.
"""

from collections.abc import Iterator
from typing import Final

import pytest

from tests.nightly.trials.trial import prepared, trial
from tests.nightly.trials.violation import explanation, known

ALWAYS: Final = ((1, "processes"), (2, "commit"), (4, "history"))
FOUND: Final = ((33, "commit"), (234, "commit"), (926, "history"))
"""Seeds and kinds that failed once for a reason that nobody knew: whoever sees one adds it here."""


@pytest.fixture(scope="module", autouse=True)
def _process_of_trials() -> Iterator[None]:
    with prepared():
        yield


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@pytest.mark.parametrize(("seed", "kind"), [*ALWAYS, *(pytest.param(*one, marks=pytest.mark.nightly) for one in FOUND)])
def test_a_seed_shows_nothing_that_is_not_known(seed: int, kind: str) -> None:
    told = trial(seed, kind)
    strange = [str(one) for one in told.violations if explanation(known(), kind, one) is None]
    assert strange == [], f"python -m tests.nightly.trials --seeds {seed} --kinds {kind}"
