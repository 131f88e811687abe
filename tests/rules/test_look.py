"""What is due, what waits and until when: golden cases of topic partitions that are only described."""

from pathlib import Path

import pytest

from tests.support.cases import Case, cases, check
from tests.support.looking import Looking

CASES = cases(Path(__file__).parent / "look")


@pytest.mark.parametrize("case", CASES, ids=map(str, CASES))
def test_case(case: Case, request: pytest.FixtureRequest) -> None:
    check(case, Looking(), rewriting=request.config.getoption("--rewrite"))
