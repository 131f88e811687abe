"""The table of floors, which says who may import whom, holds but for what is listed by name."""

from tests.nets import floors
from tests.nets.layout import PRODUCT, against_the_floors, box_of, modules


def test_every_box_stands_on_one_floor() -> None:
    boxes = {box for module in modules(*PRODUCT, "infra") if (box := box_of(module.name))}
    assert sorted(box for floor in floors.FLOORS for box in floor) == sorted(boxes)


def test_what_stands_against_the_floors_is_listed_and_only_shrinks() -> None:
    found = set(floors.against(modules(*PRODUCT, "infra")))
    assert found - against_the_floors() == set(), "not allowed by the floors"
    assert against_the_floors() - found == set(), "no longer there: take it out of the list"


def test_the_judge_imports_nothing_of_the_rest() -> None:
    imported = {name[0] for module in modules("expectations") for name in module.imported}
    assert "firnlake" not in imported
