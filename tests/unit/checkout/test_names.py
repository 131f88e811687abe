"""Names that the field does not know are gone for good: old folders, modules and classes do not come back."""

import ast

import pytest

from tests.nets.layout import PRODUCT, modules

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
    "Masking",
}  # fmt: skip


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
