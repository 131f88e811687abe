"""`firn config`: what is set, where it comes from, and how it is changed."""

import json

import pytest

from firnlake.iceberg.catalog import Lake
from tests.support.in_process import Firn
from tests.support.lakes import TABLE, append, row


@pytest.fixture
def made(firn: Firn) -> str:
    firn("create", TABLE)
    return TABLE


def test_what_topics_override_is_listed_and_a_topic_that_is_not_there_is_told(
    firn: Firn, made: str, lake: Lake
) -> None:
    append(lake, [row(0)])
    assert firn("config", "set", made, "--topic", "orders", "tier.runs=7", "merge.segments=9").err == ""
    ran = firn("config", "set", made, "--topic", "order", "tier.runs=7")
    assert (ran.code, ran.err) == (
        0,
        f"firn: {made}: warning: the table has no topic order yet; it has: orders\n",
    )
    assert firn("config", made, "--topic", "order").err == ran.err
    assert firn("config", made, "--topic", "orders").err == ""
    out = firn("config", made).out
    assert "topic order: tier.runs = 7\n" in out
    assert "topic orders: merge.segments = 9, tier.runs = 7\n" in out
    assert "topic order:" not in firn("config", made, "--topic", "orders").out


def test_every_row_fits_80_columns(firn: Firn, made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert all(len(row) <= 80 for row in firn("config", made).out.splitlines())


def test_a_topics_list_tells_which_settings_are_for_the_whole_table(firn: Firn, made: str) -> None:
    listed = json.loads(firn("config", made, "--topic", "orders", "--json").out)
    rows = [line for line in firn("config", made, "--topic", "orders").out.splitlines() if "(table only)" in line]
    assert len(rows) == sum(one["table_only"] for one in listed) > 0
    assert "(table only)" not in firn("config", made).out


def test_a_change_to_the_same_value_makes_no_commit(firn: Firn, made: str, lake: Lake) -> None:
    firn("config", "set", made, "merge.segments=7")
    before = lake.table(made).metadata_location
    firn("config", "set", made, "merge.segments=7")
    firn("config", "unset", made, "tier.runs")
    assert lake.table(made).metadata_location == before
