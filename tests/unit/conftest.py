"""Every unit test that needs a lake gets an embedded one of its own."""

from pathlib import Path

import pytest

from tests.support.embedded import lake, nothing_configured, plan, table, templates

__all__ = ["lake", "nothing_configured", "plan", "table", "templates"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder that need no lake."""
    for item in items:
        if Path(__file__).parent in item.path.parents and "lake" not in getattr(item, "fixturenames", ()):
            item.add_marker("pure")
