"""The lists of flips and of defects move with the code: each text is in its module once, and makes a mistake there."""

import ast
from functools import cache

import pytest

from tests.nets.mistakes import ROOT, Kind, Mistake, listed


@cache
def parsed(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", Kind)
def test_every_mistake_has_a_number_and_can_be_made(kind: Kind) -> None:
    mistakes = listed(kind)
    assert len({mistake.number for mistake in mistakes}) == len(mistakes)
    for mistake in mistakes:
        wrong = mistake.made_in((ROOT / mistake.module).read_text(encoding="utf-8"))
        assert ast.dump(ast.parse(wrong)) != ast.dump(parsed(mistake.module)), mistake


@pytest.mark.parametrize("kind", Kind)
def test_the_tests_that_notice_them_are_there(kind: Kind) -> None:
    for mistake in listed(kind):
        for test in mistake.tests:
            path, *names = test.split("::")
            body = parsed(path).body
            for name in (name.partition("[")[0] for name in names):
                (named,) = (one for one in body if isinstance(one, ast.ClassDef | ast.FunctionDef) and one.name == name)
                body = named.body


def test_a_text_that_is_there_twice_is_no_mistake() -> None:
    with pytest.raises(ValueError, match=r"its text is in a\.py 2 times; allowed: once"):
        Mistake(1, "a.py", "comparison", "x", "y", ()).made_in("x\nx\n")


def test_some_are_chosen_by_their_numbers() -> None:
    assert [one.number for one in listed(Kind.DEFECTS, "1-2,5")] == [1, 2, 5]
