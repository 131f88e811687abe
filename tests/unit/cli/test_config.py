"""`firn config`: what is set, where it comes from, and how it is changed."""

import json
import shlex

import pytest

from firnlake.iceberg.catalog import Lake
from firnlake.table.policies import Policies
from tests.support.in_process import Firn, refused
from tests.support.lakes import TABLE, append, row


@pytest.fixture
def made(firn: Firn) -> str:
    firn("create", TABLE)
    return TABLE


def shown(firn: Firn, *arguments: str) -> dict[str, tuple[str, str]]:
    """The value and the source of each setting."""
    return {one["name"]: (one["value"], one["source"]) for one in firn("config", *arguments, "--json").json}


def test_each_value_names_its_source(firn: Firn, made: str, lake: Lake) -> None:
    firn("config", "set", made, "profile=warpstream", "firn.merge.segments=7")
    firn("config", "set", made, "--topic", "orders", "retention.ms=1h", "merge.segments=9")
    found = shown(firn, made, "--topic", "orders")
    assert found["retention.ms"] == ("1h", "topic")
    assert found["merge.segments"] == ("9", "topic")
    assert found["min.cleanable.dirty.ratio"] == ("1", "profile warpstream")
    assert found["clean.segments"] == ("32", "default")
    assert shown(firn, made)["merge.segments"] == ("7", "table")
    policy = Policies.parse(made, lake.table(made).properties).of("orders")
    assert (policy.retention_ms, policy.merge_segments) == (3_600_000, 9)


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


def test_a_setting_is_explained(firn: Firn, made: str) -> None:
    out = firn("config", made, "retention.ms", "maintenance").out
    assert "retention.ms = 604800000 (7d), from: default" in out
    assert "Allowed: milliseconds, or a duration such as 7d, from -1 up. Default: 604800000 (7d)." in out
    assert "For the whole table only." in out


def test_every_row_fits_80_columns(firn: Firn, made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert all(len(row) <= 80 for row in firn("config", made).out.splitlines())


def test_unset_gives_the_default_again(firn: Firn, made: str, lake: Lake) -> None:
    firn("config", "set", made, "merge.segments=7")
    firn("config", "set", made, "--topic", "a.delete", "retention.ms=5")
    assert lake.table(made).properties['firn.topic."a.delete".retention.ms'] == "5"
    assert firn("config", "unset", made, "merge.segments").out == (
        f"{made}: merge.segments is 32, from: default (was 7)\nto undo: firn config set {made} merge.segments=7\n"
    )
    firn("config", "unset", made, "--topic", "a.delete", "retention.ms")
    assert not [key for key in lake.table(made).properties if "segments" in key or ".topic." in key]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("merge.segmets=4",), "there is no setting merge.segmets; did you mean merge.segments?"),
        (("merge.segments=many",), "property firn.merge.segments is 'many'; allowed: a valid integer"),
        (("merge.segments",), "argument 'merge.segments' is not a property; allowed: name=value"),
        (("--topic", "orders", "maintenance=none"), "setting maintenance can't be set for topic orders; allowed: for"),
        (("--topic", "orders", "retention.ms=soon"), "firn.topic.orders.retention.ms is 'soon'; allowed: milliseconds"),
        (("retention.ms=1h", "min.compaction.lag.ms=2h", "cleanup.policy=compact,delete"), "at least min.compaction"),
    ],
)
def test_c26_a_wrong_change_is_refused_and_changes_nothing(
    firn: Firn, made: str, lake: Lake, arguments: tuple[str, ...], told: str
) -> None:
    before = lake.table(made).metadata_location
    refused(firn("config", "set", made, *arguments), told)
    assert lake.table(made).metadata_location == before


def test_what_another_client_has_set_wrong_is_shown_and_can_be_mended(firn: Firn, made: str, lake: Lake) -> None:
    wrong = {"firn.topic.orders.retention.ms": "7 years", "firn.topic.users.merge.segments": "0"}
    lake.set_properties(made, wrong)
    ran = firn("config", made, "--topic", "orders", "retention.ms")
    assert ran.code == 1
    assert "retention.ms = 7 years, from: topic" in ran.out
    assert "property firn.topic.orders.retention.ms is '7 years'" in ran.err
    assert firn("config", "set", made, "--topic", "orders", "retention.ms=7d").code == 0
    assert firn("config", "unset", made, "--topic", "users", "merge.segments").code == 0
    assert firn("config", made).code == 0


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


def commands(out: str) -> list[list[str]]:
    """The commands that undo a change."""
    return [shlex.split(line.removeprefix("to undo: ")) for line in out.splitlines() if line.startswith("to undo: ")]


@pytest.mark.parametrize("topic", [(), ("--topic", "a.delete")])
def test_a_change_tells_the_commands_that_undo_it(firn: Firn, made: str, lake: Lake, topic: tuple[str, ...]) -> None:
    firn("config", "set", made, *topic, "merge.segments=7")
    before = lake.table(made).properties
    out = firn("config", "set", made, *topic, "merge.segments=9", "retention.ms=5", "tier.runs=4").out
    undo = commands(out)
    assert undo == [
        ["firn", "config", "unset", made, "retention.ms", "tier.runs", *topic],
        ["firn", "config", "set", made, "merge.segments=7", *topic],
    ]
    for command in undo:
        assert firn(*command[1:]).code == 0
    assert lake.table(made).properties == before
    assert "to undo" not in firn("config", "set", made, *topic, "merge.segments=7").out


def test_retention_that_has_no_effect_is_told(firn: Firn, made: str) -> None:
    told = "has no effect while cleanup.policy is compact; it takes effect under delete, and under compact,delete"
    for topic in ([], ["--topic", "orders"]):
        assert told in firn("config", "set", made, *topic, "retention.ms=5").err
        assert told not in firn("config", "set", made, *topic, "cleanup.policy=compact,delete", "retention.ms=6").err
        unset = firn("config", "unset", made, *topic, "retention.ms").out
        assert unset.startswith(f"{made}: {'topic orders: ' if topic else ''}retention.ms is 604800000 (7d), from: ")
        firn("config", "unset", made, *topic, "cleanup.policy")
