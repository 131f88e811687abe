"""The demo: its changelog is cut into landed files, and its producer's seed and clock tell what it lands, whatever gets
in its way.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from firnlake.iceberg.catalog import Lake
from infra.demo import changelog, producer
from infra.demo.changelog import Change, Entry
from infra.demo.producer import SECONDS, TABLE, produce
from tests.support.faults import Forgetful, through
from tests.support.lakes import append, row

START = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def shipped() -> list[Change]:
    return list(changelog.read_changelog())


def test_the_shipped_changelog_says_what_the_shipped_tree_says(shipped: list[Change]) -> None:
    tree = changelog.read_tree()
    newest = {change.path: change.entry for change in shipped}
    assert all(Entry.parse(entry.value()) == entry for entry in tree.values())
    assert {path: entry for path, entry in newest.items() if entry} == tree
    assert (len(shipped), len(tree)) == (98_257, 6_519)
    assert sum(change.entry is None for change in shipped) == 3_624
    assert any(later.time < sooner.time for sooner, later in pairwise(shipped))


def test_offsets_are_dense_and_partitions_are_librdkafkas(shipped: list[Change]) -> None:
    log_end: Counter[tuple[str, int]] = Counter()
    for record in changelog.records(shipped):
        assert record.partition == crc32(record.key) % 4
        assert record.offset == log_end[record.topic, record.partition]
        log_end[record.topic, record.partition] += 1
    assert len(log_end) == 8


@pytest.mark.parametrize(
    ("path", "topic"),
    [
        ("core/src/main/scala/kafka/log/LogCleaner.scala", "kafka.sources"),
        ("core/src/test/scala/unit/kafka/log/LogCleanerTest.scala", "kafka.tests"),
        ("tests/kafkatest/services/kafka.py", "kafka.tests"),
        ("build/test", "kafka.sources"),
    ],
)
def test_topic_of(path: str, topic: str) -> None:
    assert changelog.topic_of(path) == topic


def moments(commits: int, first: int = 0) -> Iterator[datetime]:
    """The clock of so many commits."""
    return (START + timedelta(seconds=SECONDS) * number for number in range(first, first + commits))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake.embedded(tmp_path)
    producer.create(made)
    return made


def landed(lake: Lake) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lake.table(TABLE).scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def test_the_same_seed_and_clock_land_the_same_records_whenever_it_was_restarted(lake: Lake, tmp_path: Path) -> None:
    other = Lake.embedded(tmp_path / "other")
    producer.create(other)
    produce(lake, moments(4))
    produce(other, moments(1))
    produce(other, moments(3, first=1))
    assert landed(other) == landed(lake)
    places = [(record["partition"], record["offset"]) for record in landed(lake)]
    ends = Counter(partition for partition, _ in places)
    assert places == [
        (partition, offset) for partition in range(producer.PARTITIONS) for offset in range(ends[partition])
    ]
    assert len(places) == 4 * producer.RECORDS


def test_others_that_commit_at_the_same_time_lose_nothing(lake: Lake) -> None:
    """Lost races and a busy SQLite, for real: another writer of the table commits as fast as it can."""

    def append_all(offsets: Iterable[int]) -> None:
        for offset in offsets:
            append(lake, [row(offset)], TABLE)

    produce(lake, moments(1))
    with ThreadPoolExecutor() as pool:
        other = pool.submit(append_all, range(6))
        produce(lake, moments(5, first=1))
    other.result()
    topics = [record["topic"] for record in landed(lake)]
    assert Counter(topics) == {producer.TOPIC: 6 * producer.RECORDS, "orders": 6}


def test_a_lost_answer_lands_nothing_twice(lake: Lake) -> None:
    """The first commit is applied and its answer lost; the next one looks where the log ends."""
    produce(through(lake, Forgetful("no")), moments(3))
    offsets = [(record["partition"], record["offset"]) for record in landed(lake)]
    assert len(offsets) == len(set(offsets)) == 3 * producer.RECORDS


def test_nothing_is_landed_while_nobody_compacts(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "MOST_SEGMENTS", 2 * producer.PARTITIONS)
    produce(lake, moments(5))
    assert len(landed(lake)) == 3 * producer.RECORDS
