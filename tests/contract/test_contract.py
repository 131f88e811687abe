"""The promises of docs/contract.md, a file of cases for each (see `tests.support.cases`)."""

from pathlib import Path

import pytest

from tests.support.cases import Case, cases, check
from tests.support.scenario import Scenario

CASES = cases(Path(__file__).parent)


@pytest.mark.parametrize("case", CASES, ids=map(str, CASES))
def test_case(case: Case, scenario: Scenario, request: pytest.FixtureRequest) -> None:
    check(case, scenario, rewriting=request.config.getoption("--rewrite"))
