"""A property has the meaning that its name promises, or it is refused: nothing that a person sets is ignored."""

import pytest

from firnlake.iceberg.catalog import Lake
from firnlake.table.policy import NAMES
from tests.support.in_process import Firn, command_on, refused
from tests.support.topics import Topic, updates

BARE = ("cleanup.policy", "retention.ms", "min.compaction.lag.ms", "merge.segments", "profile")


@pytest.fixture
def firn(lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Firn:
    """Run ``firn`` in this process, on the lake of the tests."""
    return command_on(lake, monkeypatch, capsys)


@pytest.mark.parametrize("name", BARE)
def test_w1_create_refuses_a_name_without_its_prefix(firn: Firn, topic: Topic, name: str) -> None:
    ran = firn("create", topic.table, "--property", f"{name}=1000")
    refused(ran, f"table {topic.table}: property {name} = '1000' has no effect; did you mean firn.{name}?")
    assert firn("status", topic.table).code == 1, "no table was created"


def test_w1_no_known_name_is_ignored(firn: Firn, topic: Topic) -> None:
    new = {name: f"{topic.table}_{name.replace('.', '_')}" for name in NAMES}
    created = [name for name in NAMES if firn("create", new[name], "--property", f"{name}=1").code == 0]
    assert created == []


def test_w1_nor_is_one_topics_name(firn: Firn, topic: Topic) -> None:
    ran = firn("create", topic.table, "--property", "topic.orders.retention.ms=1000")
    refused(ran, "property topic.orders.retention.ms = '1000' has no effect; did you mean firn.topic.orders.retention")


@pytest.mark.parametrize("arguments", [("status",), ("explain", "orders-0"), ("run",), ("plan", "--lane", "full")])
def test_w1_what_another_client_set_is_refused_before_anything_goes(
    firn: Firn, topic: Topic, arguments: tuple[str, ...]
) -> None:
    topic.land(updates("k=1", "k=2"))
    topic.lake.set_properties(topic.table, {"min.compaction.lag.ms": "86400000"})
    command, *others = arguments
    refused(firn(command, topic.table, *others), "did you mean firn.min.compaction.lag.ms?")
    assert topic.offsets() == [0, 1]


@pytest.mark.parametrize("command", ["plan", "run"])
def test_w1_nor_does_a_run_ignore_one(firn: Firn, topic: Topic, command: str) -> None:
    topic.land(updates("k=1", "k=2"))
    ran = firn(command, topic.table, "--lane", "merge", "--property", "merge.segments=3")
    refused(ran, "did you mean firn.merge.segments?")


def test_w1_properties_of_others_stay_theirs(firn: Firn, topic: Topic) -> None:
    of_others = {
        "write.parquet.compression-codec": "zstd",
        "write.metadata.delete-after-commit.enabled": "true",
        "history.expire.max-snapshot-age-ms": "1000",
        "commit.retry.num-retries": "2",
        "gc.enabled": "false",
        "owner": "shop",
        "retention": "a week",
        "topic.owner": "shop",
    }
    given = [text for name, value in of_others.items() for text in ("--property", f"{name}={value}")]
    assert firn("create", topic.table, *given).code == 0
    assert firn("status", topic.table).code == 0
    assert topic.lake.table(topic.table).properties.items() >= of_others.items()
