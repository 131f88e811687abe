"""The documents say what the code does: every property with its default, every setting with its description."""

import re
from pathlib import Path
from typing import get_args

import pytest

from firnlake.airflow.configuration import Settings
from firnlake.table.policy import NAMES, OVERRIDABLE, SETTINGS, Policies, Policy
from infra.reference import page
from tests.nets import promises

ROOT = Path(__file__).parents[2]
PROFILES = get_args(Policy.model_fields["profile"].annotation)


def test_the_reference_of_settings_is_what_the_code_makes() -> None:
    assert _read("settings.md") == page(), "make it again: python -m infra.reference > docs/settings.md"
    assert len(NAMES) <= 40


def test_the_contract_names_the_tests_of_each_promise() -> None:
    text = _read("contract.md")
    assert text == promises.page(text), "make the column again: python -m tests.nets.promises"


def test_every_profile_is_documented_with_its_defaults() -> None:
    row = r"^\| `([a-z.]+)`" + len(PROFILES) * r" \| `([^`]+)`" + r" \|$"
    rows = re.findall(row, _read("configuration.md"), re.MULTILINE)
    for name, *values in rows:
        found = [getattr(Policies.parse("t", {"firn.profile": profile}).default, NAMES[name]) for profile in PROFILES]
        assert [str(value) for value in found] == values, name
    assert {name for name, one in SETTINGS.items() if one.defaults.keys() & set(PROFILES)} <= {
        name for name, *_ in rows
    }


def test_every_property_that_a_run_may_override_is_documented() -> None:
    paragraph = _read("configuration.md").partition("### For one run")[2].partition("###")[0]
    assert set(re.findall(r"`([a-z.]+)`", paragraph)) == OVERRIDABLE


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_of_a_table_in_airflow_is_documented_as_it_is(name: str) -> None:
    (line,) = (line for line in _read("airflow.md").splitlines() if line.startswith(f"| `{name}` |"))
    assert line.endswith(f"| {Settings.model_fields[name].description} |")


def _read(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")
