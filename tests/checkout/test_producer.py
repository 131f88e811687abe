"""The demo's producer: its seed and clock tell what it lands, whatever gets in its way."""

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from firnlake.iceberg.catalog import Lake
from infra.demo import carts, producer
from infra.demo.producer import SECONDS, TABLE, produce
from tests.support.faults import Forgetful, through
from tests.support.lakes import append, row

START = datetime(2026, 11, 21, 12, tzinfo=UTC)


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
    assert len(landed(lake)) == 4 * carts.RECORDS


def test_offsets_are_dense_in_each_partition(lake: Lake) -> None:
    produce(lake, moments(3))
    offsets: dict[int, list[int]] = {}
    for record in landed(lake):
        offsets.setdefault(record["partition"], []).append(record["offset"])
    assert set(offsets) == set(range(carts.PARTITIONS))
    assert all(own == list(range(len(own))) for own in offsets.values())


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
    assert Counter(topics) == {carts.TOPIC: 6 * carts.RECORDS, "orders": 6}


def test_a_lost_answer_lands_nothing_twice(lake: Lake) -> None:
    """The first commit is applied and its answer lost; the next one looks where the log ends."""
    produce(through(lake, Forgetful("no")), moments(3))
    offsets = [(record["partition"], record["offset"]) for record in landed(lake)]
    assert len(offsets) == len(set(offsets)) == 3 * carts.RECORDS


def test_nothing_is_landed_while_nobody_compacts(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "MOST_SEGMENTS", 2 * carts.PARTITIONS)
    produce(lake, moments(5))
    assert len(landed(lake)) == 3 * carts.RECORDS
