"""The floors of the house: a box imports what stands on lower floors, and nothing else.

What stands against that is listed by name in `against.txt`, and may only shrink: `python -m tests.nets.floors` prints
what the code has today. Most of it is the core that names a lane; the interface of lanes takes it away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.nets.layout import PRODUCT, box_of, imported_modules, modules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.nets.layout import Import, Module

FLOORS = (
    {"errors", "progress", "firnlake_expectations"},
    {"clock"},
    {"iceberg", "engine"},
    {"table"},
    {"job"},
    {"plan", "compact", "validate", "publish", "maintain", "ingest"},
    {"lanes", "inspect", "run"},
    {"airflow", "cli", "door"},
    {"dags", "infra", "__main__"},
)
"""The boxes, floor by floor, from the ground. Boxes of one floor do not import each other."""


def against(code: Iterable[Module]) -> Iterator[Import]:
    """The imports of what does not stand on a lower floor."""
    height = {box: floor for floor, boxes in enumerate(FLOORS) for box in boxes}
    for importing, imported in imported_modules(list(code)):
        box, other = box_of(importing), box_of(imported)
        if box and other in height and other != box and height[other] >= height[box]:
            yield ".".join(importing), ".".join(imported)


if __name__ == "__main__":
    for importing, imported in sorted(set(against(modules(*PRODUCT, "infra")))):
        print(f"{importing} -> {imported}")
