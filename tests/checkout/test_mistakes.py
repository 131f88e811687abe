"""The lists of flips and of defects move with the code: each text is in its module once, and makes a mistake there."""

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.nets.mistakes import Mistake, chosen, defects, mutants
from tests.nets.python_flips import flipped, python_flips
from tests.nets.reached import Reaching, nearest
from tests.nets.sql_flips import sql_flips

ROOT = Path(__file__).parents[2]


@cache
def parsed(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("mistakes", [mutants(), defects()], ids=["mutants", "defects"])
def test_every_mistake_has_a_number_and_can_be_made(mistakes: list[Mistake]) -> None:
    assert len({mistake.number for mistake in mistakes}) == len(mistakes)
    for mistake in mistakes:
        wrong = mistake.made_in((ROOT / mistake.module).read_text(encoding="utf-8"))
        assert ast.dump(ast.parse(wrong)) != ast.dump(parsed(mistake.module)), mistake


@pytest.mark.parametrize("mistakes", [mutants(), defects()], ids=["mutants", "defects"])
def test_the_tests_that_notice_them_are_there(mistakes: list[Mistake]) -> None:
    for mistake in mistakes:
        for test in mistake.tests:
            path, *names = test.split("::")
            body = parsed(path).body
            for name in (name.partition("[")[0] for name in names):
                (named,) = (one for one in body if isinstance(one, ast.ClassDef | ast.FunctionDef) and one.name == name)
                body = named.body


def test_a_text_that_is_there_twice_is_no_mistake() -> None:
    with pytest.raises(ValueError, match=r"its text is in a\.py 2 times; allowed: once"):
        Mistake(1, "a.py", "comparison", "x", "y").made_in("x\nx\n")


def test_some_are_chosen_by_their_numbers() -> None:
    every = [Mistake(number, "a.py", "", "x", "y") for number in range(1, 6)]
    assert [one.number for one in chosen(every, "1-2,5")] == [1, 2, 5]
    assert chosen(every, "") == every


def test_flips_of_python() -> None:
    source = "def f(a: int | None, b):\n    return a < b and (not a or b)\n"
    assert {flipped(source, flip).splitlines()[1].strip() for flip in python_flips(source)} == {
        "return a > b and (not a or b)",
        "return a <= b and (not a or b)",
        "return a < b or (not a or b)",
        "return a < b",
        "return (not a or b)",
        "return a < b and (a or b)",
        "return a < b and (not a and b)",
        "return a < b and (not a)",
        "return a < b and (b)",
    }


def test_words_are_not_flipped() -> None:
    source = 'def f(a) -> str:\n    return "x" if a else "y"\n\n\ndef g(a):\n    raise ValueError(a == 1)\n'
    assert list(python_flips(source)) == []


def test_flips_of_sql() -> None:
    source = 'X = f"(a IS NULL OR b < {c if d < 1 else 2})"\nY = "neither nor, a = b"\n'
    assert {flipped(source, flip).splitlines()[0] for flip in sql_flips(source)} == {
        'X = f"(a IS NOT NULL OR b < {c if d < 1 else 2})"',
        'X = f"(a IS NULL AND b < {c if d < 1 else 2})"',
        'X = f"(a IS NULL)"',
        'X = f"(a IS NULL OR b > {c if d < 1 else 2})"',
        'X = f"(a IS NULL OR b <= {c if d < 1 else 2})"',
    }


def test_tests_of_the_same_name_come_first_and_then_the_shortest() -> None:
    mistake = next(one for one in mutants() if one.module == "pipeline/firnlake/compact/keep_or_drop.py")
    lines = {mistake.module: frozenset(range(1, 1000))}
    names = ["tests/contract/test_a.py::b", "tests/contract/test_a.py::a", "tests/unit/compact/test_b.py::a"]
    own = "tests/unit/compact/test_keep_or_drop.py::a"
    tests = [Reaching(name, seconds, lines) for seconds, name in enumerate([own, *names[:1], *names[1:]], 1)]
    unrelated = Reaching("tests/unit/compact/test_c.py::a", 0, {})
    assert [test.name for test in nearest(mistake, [*reversed(tests), unrelated])] == [own, names[2], *names[:2]]
