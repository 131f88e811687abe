"""Records at the ends of what Kafka's types can hold: every command serves them."""

import pytest

from tests.support.in_process import Firn, Ran, command_on, refused
from tests.support.topics import NOW, Record, Topic, updates

LAST = 2**63 - 1
SENSED = (("status",), ("status", "--json"), ("checkpoint",))
COMMANDS = (
    ("plan", "--lane", "full", "--force", "--now", str(NOW)),
    ("run", "--force", "--engine", "local"),
    ("verify", "--engine", "local"),
    ("explain", "{name}-0"),
    ("explain", "--key", "a"),
    ("quarantine",),
    ("maintain", "--dry-run"),
    ("erase", "--status"),
)


@pytest.fixture
def firn(topic: Topic, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Firn:
    """Run ``firn`` in this process, on the topic's lake."""
    return command_on(topic.lake, monkeypatch, capsys)


def fill(topic: Topic) -> None:
    """A clean topic that ends with the last offset there is."""
    topic.land(updates("a=1", "b=1"), [Record(LAST - 1, b"a", b"2"), Record(LAST, b"c", b"1")])
    topic.clean("full", force=True)
    assert topic.offsets() == [1, LAST - 1, LAST]


def fill_nameless(topic: Topic) -> None:
    """A clean topic whose name is empty: Kafka has none, but nothing keeps a writer from it."""
    topic.name = ""
    topic.land(updates("a=1", "b=1"), updates("a=2", start=2))
    topic.clean("full", force=True)
    assert topic.offsets() == [1, 2]


def serves(firn: Firn, topic: Topic, command: tuple[str, ...]) -> Ran:
    """The command, with the table's name after its own; it must end well."""
    name, *others = command
    ran = firn(name, topic.table, *(one.format(name=topic.name) for one in others))
    assert ran.code == 0, ran
    assert ran.err == ""
    return ran


@pytest.mark.parametrize("command", SENSED, ids=" ".join)
def test_r22_what_is_sensed_serves_the_last_offset(topic: Topic, firn: Firn, command: tuple[str, ...]) -> None:
    fill(topic)
    ran = serves(firn, topic, command)
    assert command != ("checkpoint",) or ran.out == f"0\n1\norders 0 {LAST}\n"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_r22_so_do_other_commands(topic: Topic, firn: Firn, command: tuple[str, ...]) -> None:
    fill(topic)
    serves(firn, topic, command)


def test_r22_a_request_that_could_not_cover_the_last_offset_is_refused(topic: Topic, firn: Firn) -> None:
    """It is for what lies below the log end, and no number lies past this one."""
    fill(topic)
    ran = firn("erase", topic.table, "--key", "a", "--within", "7d")
    refused(ran, f"table {topic.table}: the log of orders-0 ends at offset {LAST}, which no request can cover; ")


@pytest.mark.parametrize("command", [("verify", "--engine", "local"), ("explain", "--", "-0")], ids=" ".join)
def test_r22_a_topic_without_a_name_is_named(topic: Topic, firn: Firn, command: tuple[str, ...]) -> None:
    fill_nameless(topic)
    serves(firn, topic, command)


@pytest.mark.parametrize(
    "command", [("status",), ("erase", "--key", "a", "--within", "7d"), *COMMANDS[:2]], ids=" ".join
)
def test_r22_and_served_by_other_commands(topic: Topic, firn: Firn, command: tuple[str, ...]) -> None:
    fill_nameless(topic)
    serves(firn, topic, command)


def test_r22_kafka_has_no_checkpoint_for_it(topic: Topic, firn: Firn) -> None:
    fill_nameless(topic)
    ran = firn("checkpoint", topic.table)
    assert (ran.code, ran.out) == (1, "0\n0\n"), "a checkpoint without an entry"
    assert f"table {topic.table}: topic '' (partition 0) can't be written" in ran.err
