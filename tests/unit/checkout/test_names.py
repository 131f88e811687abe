"""Names that the field does not know are gone for good: old folders, modules, classes and settings do not come back."""

import ast
import re

import pytest

from firnlake.cli.main import COMMANDS
from firnlake.iceberg.branches import FIRN_BRANCHES
from firnlake.job.lane import Lane
from firnlake.table.policies import PREFIX
from firnlake.table.policy import NAMES
from firnlake.table.records import COLUMNS, RELEASED
from tests.nets.layout import PRODUCT, ROOT, modules

FOLDERS = {
    "lake", "care", "prove", "erase", "sense", "staging", "masks", "explain", "status", "land", "adopt", "quarantine",
    "history", "segments", "policy", "space", "simulate",
}  # fmt: skip
"""Boxes that were."""
MODULES = {
    "outcome", "optimistic_commit", "preconditions", "hidden_records", "avro", "garbage", "cared", "proved", "erased",
    "measured", "rooms", "adopting", "explained", "quarantined", "verified", "chain", "judged", "wide",
}  # fmt: skip
CLASSES = {
    "Stray", "Facts", "Columns", "ColumnMapping", "Reading", "_Docket", "Wanted", "Looked", "Garbage", "Erasing",
    "Masking", "Masks", "MaskTask", "MasksChange", "LightenTask", "CarePart",
}  # fmt: skip
LANES = {"mask", "lighten"}
BRANCHES = {"firn_masks"}
SUBCOMMANDS = {"care"}
PROPERTIES = ("firn.care.", "firn.mask.", "firn.lighten.", "firn.stage.max.age.ms", "firn-columns", "firn-released")
"""Beginnings of table properties."""
TARGETS = {"faults-care", "faults-rooms"}
"""Of `make`."""


def test_no_box_has_an_old_name() -> None:
    assert {module.name[1] for module in modules("pipeline") if len(module.name) > 1} & FOLDERS == set()


def test_no_module_has_an_old_name() -> None:
    assert {module.name[-1] for module in modules(*PRODUCT)} & MODULES == set()


@pytest.mark.parametrize("part", PRODUCT)
def test_no_class_has_an_old_name_and_none_has_two_homes(part: str) -> None:
    classes = [node.name for module in modules(part) for node in module.nodes if isinstance(node, ast.ClassDef)]
    assert set(classes) & CLASSES == set()
    public = [name for name in classes if not name.startswith("_")]
    assert sorted(public) == sorted(set(public))


def test_no_command_has_an_old_name() -> None:
    assert COMMANDS.keys() & SUBCOMMANDS == set()


def test_no_lane_and_no_branch_has_an_old_name() -> None:
    assert {str(lane) for lane in Lane} & LANES == set()
    assert set(FIRN_BRANCHES) & BRANCHES == set()


def test_no_table_property_has_an_old_name() -> None:
    known = {COLUMNS, RELEASED} | {f"{PREFIX}{name}" for name in NAMES}
    assert [name for name in known if name.startswith(PROPERTIES)] == []


def test_no_target_of_make_has_an_old_name() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert "test" in targets
    assert targets & TARGETS == set()
