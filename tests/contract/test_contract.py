"""The promises of docs/contract.md, a file of cases for each (see `tests.support.cases`)."""

from pathlib import Path

import pytest

from tests.support.cases import Case, cases, rewrite
from tests.support.scenario import Scenario

CASES = cases(Path(__file__).parent)


@pytest.mark.parametrize("case", CASES, ids=map(str, CASES))
def test_case(case: Case, scenario: Scenario, request: pytest.FixtureRequest) -> None:
    lines = case.played(scenario)
    if lines != case.lines and request.config.getoption("--rewrite"):
        rewrite(case, lines)
    else:
        assert lines == case.lines, f"{case.path.name}:{case.first}"
