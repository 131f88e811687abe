"""The code grows in no respect unnoticed: the figures of `make layout` are held."""

import pytest

from tests.nets import layout

AT_MOST = {
    "folders in the package": 14,
    "boxes": 22,
    "floors": 8,
    "circles": 0,
    "imports against the floors": 48,
    "product lines": 44_000,
    "product lines that are not blank": 36_360,
    "files": 270,
    "classes": 432,
    "functions": 2_690,
    "infra lines": 5_809,
    "test lines": 59_075,
    "modules above 350 lines": 0,
    "modules that commit": 1,
    "modules that delete": 4,
}
AT_LEAST = {"docstrings, %": 77.0}


@pytest.fixture(scope="module")
def measured() -> dict[str, float]:
    return layout.measured()


def test_every_figure_is_held(measured: dict[str, float]) -> None:
    assert measured.keys() == AT_MOST.keys() | AT_LEAST.keys()


@pytest.mark.parametrize("figure", AT_MOST)
def test_no_figure_has_grown(measured: dict[str, float], figure: str) -> None:
    assert measured[figure] <= AT_MOST[figure]


@pytest.mark.parametrize("figure", AT_LEAST)
def test_no_figure_has_shrunk(measured: dict[str, float], figure: str) -> None:
    assert measured[figure] >= AT_LEAST[figure]


def test_the_infrastructure_imports_no_tests() -> None:
    assert not [
        module.path for module in layout.modules("infra") if any(name[0] == "tests" for name in module.imported)
    ]


def test_floors_are_the_longest_chain_and_a_circle_is_one_step() -> None:
    chain = {"roof": {"top"}, "top": {"left", "right"}, "left": {"right", "base"}, "right": {"left"}, "base": set()}
    assert layout.floors(chain) == 4
    assert layout.circles(chain) == [{"left", "right"}]
