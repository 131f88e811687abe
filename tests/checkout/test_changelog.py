"""The demo's input: what is shipped, and how it is cut into landed files."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import pyarrow.parquet as pq
import pytest

from infra.demo import changelog, segments
from infra.demo.changelog import Change, Entry


def test_a_value_is_parsed_back() -> None:
    entry = Entry("120000", "3b9646c1f877e6b227582333948f22593d7f974e")
    assert Entry.parse(entry.value()) == entry


@pytest.fixture(scope="module")
def shipped() -> list[Change]:
    return list(changelog.read_changelog())


def test_the_shipped_changelog_says_what_the_shipped_tree_says(shipped: list[Change]) -> None:
    tree = changelog.read_tree()
    newest = {change.path: change.entry for change in shipped}
    assert {path: entry for path, entry in newest.items() if entry} == tree
    assert (len(shipped), len(tree)) == (98_257, 6_519)
    assert sum(change.entry is None for change in shipped) == 3_624
    assert any(later.time < sooner.time for sooner, later in pairwise(shipped))


def test_offsets_are_dense_and_partitions_are_librdkafkas(shipped: list[Change]) -> None:
    log_end: Counter[tuple[str, int]] = Counter()
    for record in segments.records(shipped):
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
    assert segments.topic_of(path) == topic


@pytest.mark.nightly
def test_default_thresholds_fire_on_what_is_landed(shipped: list[Change], tmp_path: Path) -> None:
    """A topic partition needs 32 landed segments for a merge, 32 × 32 for a clean after it (C13, C14)."""
    batches = list(segments.write_batches(shipped, tmp_path))
    assert len(batches) == segments.COMMITS
    landed: Counter[tuple[str, int]] = Counter()
    rows = 0
    for file in (file for batch in batches for file in batch):
        table = pq.read_table(file, columns=["topic", "partition"])
        rows += table.num_rows
        landed.update(
            {(row["topic"], row["partition"]) for row in table.group_by(table.column_names).aggregate([]).to_pylist()}
        )
    assert rows == len(shipped)
    assert landed[segments.EAGER] > 1_100
    assert all(count >= 32 for count in landed.values())
    assert sum(landed.values()) < 2_600
