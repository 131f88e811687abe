"""The documentation lists every setting of a table in Airflow, with its description."""

from pathlib import Path

import pytest

from firnlake.airflow.configuration import Settings

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_documented_as_it_is(name: str) -> None:
    (line,) = (line for line in OPERATIONS.read_text().splitlines() if line.startswith(f"| `{name}` |"))
    assert line.endswith(f"| {Settings.model_fields[name].description} |")
