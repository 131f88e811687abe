"""Folders of Kafka's log."""

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of orders-0."""
    return tmp_path / "orders-0"
