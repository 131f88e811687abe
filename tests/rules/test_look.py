"""What is due, what waits and until when: golden cases of topic partitions that are only described."""

from pathlib import Path

import pytest

from tests.support.cases import Case, cases, rewrite
from tests.support.looking import Looking

CASES = cases(Path(__file__).parent / "look")


@pytest.mark.parametrize("case", CASES, ids=map(str, CASES))
def test_case(case: Case, request: pytest.FixtureRequest) -> None:
    lines = case.played(Looking())
    if lines != case.lines and request.config.getoption("--rewrite"):
        rewrite(case, lines)
    else:
        assert lines == case.lines, f"{case.path.name}:{case.first}"
