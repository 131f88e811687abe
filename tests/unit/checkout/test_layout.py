"""The shape of the code holds: floors, no circles, modules that can be read in one go, one module that commits."""

import ast

import pytest

from tests.nets import layout

AT_MOST = {
    "floors": 8,
    "circles": 0,
    f"modules above {layout.LONG} lines": 0,
    "modules that commit": 1,
    "modules that delete": 4,
}


@pytest.fixture(scope="module")
def measured() -> dict[str, float]:
    return layout.measured()


@pytest.mark.parametrize("figure", AT_MOST)
def test_the_shape_holds(measured: dict[str, float], figure: str) -> None:
    assert measured[figure] <= AT_MOST[figure]


@pytest.mark.parametrize("part", layout.PRODUCT)
def test_no_public_class_has_two_homes(part: str) -> None:
    classes = [node.name for module in layout.modules(part) for node in module.nodes if isinstance(node, ast.ClassDef)]
    public = sorted(name for name in classes if not name.startswith("_"))
    assert public == sorted(set(public))


def test_the_infrastructure_imports_no_tests() -> None:
    assert not [
        module.path for module in layout.modules("infra") if any(name[0] == "tests" for name in module.imported)
    ]


def test_floors_are_the_longest_chain_and_a_circle_is_one_step() -> None:
    chain = {"roof": {"top"}, "top": {"left", "right"}, "left": {"right", "base"}, "right": {"left"}, "base": set()}
    assert layout.floors(chain) == 4
    assert layout.circles(chain) == [{"left", "right"}]
