"""The demo's input: what is read from git, what is shipped, and how it is cut into landed files."""

import os
import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import pyarrow.parquet as pq
import pytest

from infra.demo import changelog, segments
from infra.demo.changelog import Change, Entry

EPOCH = 1_300_000_000  # git takes smaller numbers for dates


class Repository:
    """A git repository whose author times the test decides."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str, time: int = 0) -> None:
        who = {f"GIT_{role}_{fact}": "x@y" for role in ("AUTHOR", "COMMITTER") for fact in ("NAME", "EMAIL")}
        when = {"GIT_AUTHOR_DATE": f"{EPOCH + time} +0000", "GIT_COMMITTER_DATE": "2000000000 +0000"}
        alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        subprocess.run(["git", *arguments], cwd=self.folder, env=os.environ | who | when | alone, check=True)

    def write(self, path: str, text: str) -> None:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def commit(self, time: int) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message=m", time=time)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path)
    made.write("a", "1")
    made.write("b dir/ünïcode", "2")
    made.commit(time=1000)
    made.commit(time=1100)  # changes nothing
    made.git("checkout", "--quiet", "-b", "side")
    made.write("side", "3")
    made.commit(time=500)
    made.write("side", "4")
    made.commit(time=600)
    made.git("checkout", "--quiet", "main")
    (made.folder / "a").chmod(0o755)
    made.commit(time=900)
    made.git("merge", "--quiet", "--no-ff", "--message=m", "side", time=1300)
    (made.folder / "side").rename(made.folder / "moved")
    made.commit(time=1200)
    return made


def test_history_is_first_parent_with_author_times(repository: Repository) -> None:
    changes = list(changelog.read_history(repository.folder))
    assert [(change.time - EPOCH, change.path, change.entry is None) for change in changes] == [
        (1000, "a", False),
        (1000, "b dir/ünïcode", False),
        (900, "a", False),  # the mode; and earlier than the commit before it
        (1300, "side", False),  # the merge, once, not the two commits it brought
        (1200, "moved", False),
        (1200, "side", True),  # a rename is an addition and a deletion
    ]
    assert changes[2].entry == Entry("100755", changes[0].entry.blob if changes[0].entry else "")


def test_replaying_the_history_gives_the_tree(repository: Repository) -> None:
    tree = changelog.read_tree(repository.folder)
    assert set(tree) == {"a", "b dir/ünïcode", "moved"}
    assert changelog.replay(changelog.read_history(repository.folder)) == tree


def test_files_round_trip(tmp_path: Path) -> None:
    entry = Entry("100644", "3b9646c1f877e6b227582333948f22593d7f974e")
    changes = [Change(7, "with space", entry), Change(5, "ünï\udcff", None)]
    changelog.write_changelog(tmp_path / "changelog.xz", changes)
    assert list(changelog.read_changelog(tmp_path / "changelog.xz")) == changes
    changelog.write_tree(tmp_path / "tree.xz", {"with space": entry})
    assert changelog.read_tree_list(tmp_path / "tree.xz") == {"with space": entry}


def test_a_value_is_parsed_back() -> None:
    entry = Entry("120000", "3b9646c1f877e6b227582333948f22593d7f974e")
    assert Entry.parse(entry.value()) == entry


def test_a_line_feed_in_a_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="line feed"):
        changelog.write_changelog(tmp_path / "changelog.xz", [Change(7, "two\nlines", None)])


def test_not_a_repository_is_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="git log in"):
        list(changelog.read_history(tmp_path / "nowhere"))


@pytest.fixture(scope="module")
def shipped() -> list[Change]:
    return list(changelog.read_changelog())


def test_the_shipped_changelog_says_what_the_shipped_tree_says(shipped: list[Change]) -> None:
    tree = changelog.read_tree_list()
    assert changelog.replay(shipped) == tree
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
