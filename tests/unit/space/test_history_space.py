"""Bytes that only history holds, beside a count of every file of every snapshot."""

import random
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.table import Table

from pipeline.history import ancestors
from pipeline.lake import Lake
from pipeline.lake.branches import SIDE_BRANCHES
from pipeline.space import HistorySpace, history, history_space
from tests.support.lakes import TABLE, append, on_disk, row, stored

TOPICS = ("orders", "carts")

Files = Mapping[str, tuple[str, int]]
"""Topic and size by path."""


def files_of(table: Table, snapshot_id: int) -> Files:
    """Every live file of a snapshot, from all its manifests."""
    snapshot = table.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    entries = (entry for one in snapshot.manifests(table.io) for entry in one.fetch_manifest_entry(table.io))
    return {one.data_file.file_path: (one.data_file.partition[0], one.data_file.file_size_in_bytes) for one in entries}


def counted(table: Table, retained: Collection[int]) -> HistorySpace:
    """The same figures by listing the files of every snapshot."""
    refs = table.metadata.refs
    live: set[str] = set()
    for name in ("main", *SIDE_BRANCHES):
        if name in refs:
            live |= files_of(table, refs[name].snapshot_id).keys()
    by_snapshot = {one.snapshot_id: files_of(table, one.snapshot_id) for one in table.metadata.snapshots}
    held: dict[str, tuple[str, int]] = {}
    staying: set[str] = set()
    for snapshot_id, files in by_snapshot.items():
        held |= {path: file for path, file in files.items() if path not in live}
        if snapshot_id in retained:
            staying |= files.keys()
    of_topic: Counter[str] = Counter()
    freed: Counter[str] = Counter()
    for path, (topic, size) in held.items():
        of_topic[topic] += size
        freed[topic] += 0 if path in staying else size
    by_topic = {topic: (of_topic[topic], freed[topic]) for topic in of_topic}
    return exact(of_topic.total(), freed.total(), by_topic)


def exact(held: int, expirable: int, by_topic: Mapping[str, tuple[int, int]]) -> HistorySpace:
    return HistorySpace(
        held_bytes=held,
        held_is_exact=True,
        expirable_bytes=expirable,
        expirable_is_exact=True,
        by_topic=by_topic,
        unread=0,
    )


def told(table: Table, retained: Collection[int], cache: Path | None = None) -> HistorySpace:
    return history_space(table, TABLE, retained, cache)


def everything(table: Table) -> set[int]:
    return {snapshot.snapshot_id for snapshot in table.metadata.snapshots}


def heads(table: Table) -> set[int]:
    return {ref.snapshot_id for ref in table.metadata.refs.values()}


def remove(table: Table, paths: Collection[str], branch: str = "main") -> None:
    """Take files out of a branch, as an engine does that overwrites them."""
    scan = table.scan().use_ref(branch) if branch != "main" else table.scan()
    files = [task.file for task in scan.plan_files() if task.file.file_path in paths]
    with table.transaction() as transaction, transaction.update_snapshot(branch=branch).overwrite() as change:
        for file in files:
            change.delete_data_file(file)


def offsets_of(number: int) -> list[dict[str, object]]:
    """Records of both topics, of a size of their own."""
    return [row(number, value=b"v" * (10 * number), topic=topic) for topic in TOPICS]


@pytest.fixture
def history_of_six(lake: Lake, table: str) -> Table:
    """Six appends of two files; then the third's files go, and the first's and second's."""
    for number in range(6):
        append(lake, offsets_of(number))
    loaded = lake.table(table)
    for numbers in ((2,), (0, 1)):
        going = [path for path, (_, size) in sorted(by_append(loaded).items()) if size in numbers]
        remove(lake.table(table), going)
    return lake.table(table)


def by_append(table: Table) -> dict[str, tuple[str, int]]:
    """Topic and number of the append of each live file."""
    numbers = {one.snapshot_id: place for place, one in enumerate(s for s in table.metadata.snapshots if _appends(s))}
    snapshot = table.current_snapshot()
    assert snapshot is not None
    entries = (entry for one in snapshot.manifests(table.io) for entry in one.fetch_manifest_entry(table.io))
    return {one.data_file.file_path: (one.data_file.partition[0], numbers[one.snapshot_id or 0]) for one in entries}


def _appends(snapshot: object) -> bool:
    summary = getattr(snapshot, "summary", None)
    return summary is not None and "added-data-files" in summary.additional_properties


class TestFigures:
    """Totals and topics, exact."""

    def test_nothing_is_held_where_nothing_was_removed(self, lake: Lake, table: str) -> None:
        append(lake, offsets_of(1))
        assert told(lake.table(table), ()) == exact(0, 0, {})

    def test_what_was_removed_is_held_until_its_snapshots_go(self, history_of_six: Table) -> None:
        found = told(history_of_six, everything(history_of_six))
        assert found == counted(history_of_six, everything(history_of_six))
        assert found.held_bytes > 0
        assert found.expirable_bytes == 0
        freed = told(history_of_six, heads(history_of_six))
        assert freed == counted(history_of_six, heads(history_of_six))
        assert freed.expirable_bytes == found.held_bytes

    def test_a_tag_keeps_what_was_there_and_no_more(self, history_of_six: Table) -> None:
        snapshots = history_of_six.metadata.snapshots
        for tagged in snapshots:
            retained = heads(history_of_six) | {tagged.snapshot_id}
            assert told(history_of_six, retained) == counted(history_of_six, retained)

    def test_a_tag_whose_neighbours_have_expired(self, lake: Lake, history_of_six: Table) -> None:
        *_, old, _, _, last, _ = history_of_six.metadata.snapshots
        going = everything(history_of_six) - heads(history_of_six) - {old.snapshot_id, last.snapshot_id}
        history_of_six.manage_snapshots().create_tag(old.snapshot_id, "audit").commit()
        lake.table(TABLE).maintenance.expire_snapshots().by_ids(sorted(going)).commit()
        left = lake.table(TABLE)
        assert old.snapshot_id in everything(left)
        for retained in (heads(left), everything(left), heads(left) - {old.snapshot_id}):
            assert told(left, retained) == counted(left, retained)

    def test_a_branch_holds_what_it_added(self, lake: Lake, history_of_six: Table) -> None:
        at = history_of_six.metadata.snapshots[-3].snapshot_id
        history_of_six.manage_snapshots().create_branch(at, "audit").commit()
        lake.table(TABLE).append(lake.table(TABLE).scan().to_arrow(), branch="audit")
        left = lake.table(TABLE)
        for retained in (everything(left), heads(left) - {left.metadata.refs["audit"].snapshot_id}):
            assert told(left, retained) == counted(left, retained)
        assert not told(left, heads(left)).expirable_is_exact, "the branch's origin goes: what it had is not compared"
        assert told(left, heads(left)).expirable_bytes <= counted(left, heads(left)).expirable_bytes

    @pytest.mark.parametrize("seed", range(6))
    def test_c29_random_histories(self, lake: Lake, table: str, seed: int) -> None:
        choose = random.Random(seed)  # noqa: S311  # a history, not a secret
        random_commits(lake, choose)
        left = lake.table(table)
        for _ in range(4):
            retained = heads(left) | {one for one in everything(left) if choose.random() < 0.4}
            found, right = told(left, retained), counted(left, retained)
            if found.held_is_exact:
                assert found.held_bytes == right.held_bytes
                assert found.expirable_bytes <= right.expirable_bytes
            if found.expirable_is_exact:
                assert found == right


def random_commits(lake: Lake, choose: random.Random) -> None:
    """Commits on main and on branches, tags, and snapshots that expire one by one."""
    for number in range(40):
        loaded = lake.table(TABLE)
        branches = [name for name in loaded.metadata.refs if name == "main" or name.startswith("branch")]
        branch = choose.choice(branches)
        match choose.choices(("append", "remove", "tag", "branch", "expire"), (8, 8, 1, 1, 3))[0]:
            case "append":
                loaded.append(stored(offsets_of(number)), branch=branch)
            case "remove":
                scan = loaded.scan().use_ref(branch) if branch != "main" else loaded.scan()
                live = {task.file.file_path: task.file.file_size_in_bytes for task in scan.plan_files()}
                by_size = sorted(live, key=lambda path: live[path])
                remove(loaded, choose.sample(by_size, min(len(by_size), choose.randint(1, 3))), branch)
            case "tag":
                at = choose.choice([snapshot.snapshot_id for snapshot in ancestors(loaded)])
                loaded.manage_snapshots().create_tag(at, f"tag{number}").commit()
            case "branch":
                at = loaded.metadata.refs[branch].snapshot_id
                loaded.manage_snapshots().create_branch(at, f"branch{number}").commit()
            case "expire":
                past = [one.snapshot_id for one in loaded.metadata.snapshots if one.snapshot_id not in heads(loaded)]
                if past:
                    going = choose.sample(past, choose.randint(1, len(past)))
                    loaded.maintenance.expire_snapshots().by_ids(going).commit()


class TestReading:
    """Manifests are read once, a few at a time; what is unread is said."""

    def test_without_a_manifest_totals_are_still_told(
        self, history_of_six: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(history, "SNAPSHOTS_AT_ONCE", 0)
        right = counted(history_of_six, heads(history_of_six))
        found = told(history_of_six, heads(history_of_six))
        assert found == replace(exact(right.held_bytes, right.expirable_bytes, {}), unread=2)
        tagged = heads(history_of_six) | {history_of_six.metadata.snapshots[-4].snapshot_id}
        assert not told(history_of_six, tagged).expirable_is_exact, "only manifests tell what the tag keeps"
        assert told(history_of_six, tagged).expirable_bytes <= counted(history_of_six, tagged).expirable_bytes

    def test_each_call_reads_on(self, history_of_six: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(history, "SNAPSHOTS_AT_ONCE", 1)
        retained = heads(history_of_six)
        assert [told(history_of_six, retained, tmp_path).unread for _ in range(3)] == [1, 0, 0]
        assert told(history_of_six, retained, tmp_path) == counted(history_of_six, retained)

    def test_what_was_read_is_not_read_again(self, history_of_six: Table, tmp_path: Path) -> None:
        retained = heads(history_of_six)
        first = told(history_of_six, retained, tmp_path)
        for snapshot in history_of_six.metadata.snapshots:
            on_disk(snapshot.manifest_list).unlink()
        assert told(history_of_six, retained, tmp_path) == first

    def test_c29_a_manifest_that_is_gone_leaves_its_commit_unread(self, history_of_six: Table, tmp_path: Path) -> None:
        right = counted(history_of_six, heads(history_of_six))
        on_disk(history_of_six.metadata.snapshots[-2].manifest_list).unlink()
        for _ in range(2):
            found = told(history_of_six, heads(history_of_six), tmp_path)
            assert (found.held_bytes, found.expirable_bytes, found.unread) == (
                right.held_bytes,
                right.expirable_bytes,
                1,
            )

    def test_a_damaged_cache_is_read_anew(self, history_of_six: Table, tmp_path: Path) -> None:
        first = told(history_of_six, heads(history_of_six), tmp_path)
        (path,) = tmp_path.glob("*.arrow")
        path.write_bytes(path.read_bytes()[:-40])
        assert told(history_of_six, heads(history_of_six), tmp_path) == first
