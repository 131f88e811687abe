"""Processes share a cache of manifests: the same segments, without reading the manifests again."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.manifest import ManifestContent
from pyiceberg.typedef import Record

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.plan.read_states import sense_table
from firnlake.table.segment import Segments
from firnlake.table.segment_cache import LIMIT_SETTING, ManifestCache
from firnlake.table.segments import read
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.foreign import append_again, append_empty_file, delete_rows, written_under_no_spec
from tests.support.lakes import NOW, append, append_file, row


def plain(lake: Lake) -> None:
    append(lake, [row(0), row(1, key=None), row(2, value=None)])
    append(lake, [row(0, topic="a"), row(7, partition=1, level=3)])


def row_deletes(lake: Lake) -> None:
    hit = append_file(lake, [row(0), row(1)])
    append(lake, [row(0, partition=1)])
    delete_rows(lake, hit, [1])
    append(lake, [row(2)])


def copies(lake: Lake) -> None:
    append_again(lake, append_file(lake, [row(0), row(1, key=None), row(2, value=None)]))


def copies_elsewhere(lake: Lake) -> None:
    append_again(lake, append_file(lake, [row(0)]), Record("orders", 1, None))


def strays(lake: Lake) -> None:
    append(lake, [row(0), row(5) | {"topic": None}])
    written_under_no_spec(lake, [row(4), row(6, partition=3)])
    written_under_no_spec(lake, [row(4) | {"topic": None}])


def problems(lake: Lake) -> None:
    append(lake, [row(0, level=7), row(3, level=1), row(0, partition=-1)])
    append(lake, [row(1) | {"timestamp": None}])
    written_under_no_spec(lake, [row(8), row(9, level=3)])


def nothing_in_it(lake: Lake) -> None:
    append_empty_file(lake)


def removed(lake: Lake) -> None:
    append(lake, [row(0), row(0, partition=1)])
    lake.table(lakes.TABLE).delete("partition = 1")


def expired(lake: Lake) -> None:
    append(lake, [row(0)])
    first = lakes.snapshot(lake)
    assert first is not None
    append(lake, [row(1)])
    lake.table(lakes.TABLE).maintenance.expire_snapshots().by_id(first).commit()


TABLES = [plain, row_deletes, copies, copies_elsewhere, strays, problems, nothing_in_it, removed, expired]


@pytest.fixture
def cache(lake: Lake) -> ManifestCache:
    found = ManifestCache.of(lake)
    assert found is not None
    return found


def uncached(lake: Lake) -> Segments:
    return read(lake.table(lakes.TABLE), lakes.TABLE)


def cached(lake: Lake, cache: ManifestCache) -> Segments:
    return read(lake.table(lakes.TABLE), lakes.TABLE, cache=cache)


def packs(lake: Lake) -> list[Path]:
    return sorted(lake.cache_folder.rglob("*.arrow"))


def lose_the_manifests(lake: Lake) -> None:
    """From now on nothing can read a manifest of data files."""
    table = lake.table(lakes.TABLE)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    for manifest in snapshot.manifests(table.io):
        if manifest.content == ManifestContent.DATA:
            on_disk(manifest.manifest_path).unlink()


@pytest.mark.usefixtures("table")
class TestTheSame:
    """Whatever other writers left in the table."""

    @pytest.mark.parametrize("fill", TABLES)
    def test_segments_are_the_same_without_reading_a_manifest_again(
        self, lake: Lake, cache: ManifestCache, fill: Callable[[Lake], None]
    ) -> None:
        fill(lake)
        expected = uncached(lake)
        assert cached(lake, cache) == expected
        lose_the_manifests(lake)
        assert cached(lake, cache) == expected

    def test_what_was_committed_since_is_read_as_well(self, lake: Lake, cache: ManifestCache) -> None:
        for fill in (plain, row_deletes, strays, copies):
            fill(lake)
            assert cached(lake, cache) == uncached(lake)

    def test_row_level_deletes_that_came_since_count(self, lake: Lake, cache: ManifestCache) -> None:
        hit = append_file(lake, [row(0), row(1)])
        assert [segment.row_deletes for segment in cached(lake, cache)] == [0]
        delete_rows(lake, hit, [1])
        assert [segment.row_deletes for segment in cached(lake, cache)] == [1]

    def test_c12_an_expired_snapshot_leaves_no_clock(self, lake: Lake, cache: ManifestCache) -> None:
        append(lake, [row(0)])
        assert [segment.committed_ms is None for segment in cached(lake, cache)] == [False]
        expired(lake)
        assert cached(lake, cache) == uncached(lake)

    def test_a_renamed_column_is_looked_at_again(self, lake: Lake, cache: ManifestCache) -> None:
        """Under its new name the column that was called so means something else."""
        plain(lake)
        cached(lake, cache)
        for old, new in (("value", "other"), ("key", "value"), ("other", "key")):
            with lake.table(lakes.TABLE).update_schema() as update:
                update.rename_column(old, new)
        assert cached(lake, cache) == uncached(lake)

    def test_processes_at_the_same_time_do_not_disturb_each_other(self, lake: Lake, cache: ManifestCache) -> None:
        for number in range(20):
            append(lake, [row(number)])
        expected = uncached(lake)
        assert lakes.together(*[lambda: cached(lake, cache)] * 4) == [expected] * 4
        assert cached(lake, cache) == expected


@pytest.mark.usefixtures("table")
class TestPacks:
    """The files that hold it."""

    @pytest.mark.parametrize("damage", ["cut short", "a byte changed", "emptied", "named otherwise"])
    def test_a_damaged_one_is_read_again(self, lake: Lake, cache: ManifestCache, damage: str) -> None:
        plain(lake)
        expected = cached(lake, cache)
        (pack,) = packs(lake)
        content = pack.read_bytes()
        match damage:
            case "cut short":
                pack.write_bytes(content[: len(content) // 2])
            case "a byte changed":
                middle = len(content) // 2
                pack.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
            case "emptied":
                pack.write_bytes(b"")
            case _:
                pack.rename(pack.with_stem("0" * 32))
        assert cached(lake, cache) == expected
        assert [one.name for one in packs(lake)] == [pack.name]
        assert pack.read_bytes() == content

    def test_there_are_never_many(self, lake: Lake, cache: ManifestCache) -> None:
        for number in range(12):
            append(lake, [row(number)])
            cached(lake, cache)
        assert 1 <= len(packs(lake)) <= 8
        lose_the_manifests(lake)
        assert [segment.base_offset for segment in cached(lake, cache)] == list(range(12))

    def test_what_is_in_no_current_snapshot_goes(self, lake: Lake, cache: ManifestCache) -> None:
        append(lake, [row(number, partition=number) for number in range(50)])
        cached(lake, cache)
        (large,) = packs(lake)
        lake.table(lakes.TABLE).delete("partition >= 1")
        cached(lake, cache)
        append(lake, [row(1)])
        cached(lake, cache)
        assert large not in packs(lake)

    def test_those_used_longest_ago_go_first(self, lake: Lake, tmp_path: Path) -> None:
        append(lake, [row(0)])
        cached(lake, ManifestCache(tmp_path / "packs"))
        (old,) = (tmp_path / "packs").rglob("*.arrow")
        append(lake, [row(1)])
        cached(lake, ManifestCache(tmp_path / "packs", limit=old.stat().st_size * 3 // 2))
        (left,) = (tmp_path / "packs").rglob("*.arrow")
        assert left != old

    def test_what_a_killed_process_left_goes(self, lake: Lake, cache: ManifestCache) -> None:
        append(lake, [row(0)])
        cached(lake, cache)
        (pack,) = packs(lake)
        old, new = (pack.with_name(f".unfinished-{name}") for name in ("old", "new"))
        for path in (old, new):
            path.write_bytes(b"half a pack")
        os.utime(old, (0, 0))
        append(lake, [row(1)])
        cached(lake, cache)
        assert (old.exists(), new.exists()) == (False, True)

    def test_a_folder_that_cannot_be_written_is_no_obstacle(self, lake: Lake, tmp_path: Path) -> None:
        plain(lake)
        (tmp_path / "packs").write_text("not a folder")
        assert cached(lake, ManifestCache(tmp_path / "packs")) == uncached(lake)

    def test_sense_keeps_them_in_the_home_of_the_lake(self, lake: Lake, table: str) -> None:
        plain(lake)
        expected, _ = sense_table(lake, table, NOW)
        assert len(packs(lake)) == 1
        lose_the_manifests(lake)
        assert sense_table(lake, table, NOW)[0] == expected


class TestSetting:
    def test_0_bytes_is_no_cache(self, lake: Lake, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(LIMIT_SETTING, "0")
        plain(lake)
        sense_table(lake, table, NOW)
        assert packs(lake) == []

    @pytest.mark.parametrize("wrong", ["", "many", "-1", "1.5"])
    def test_c26_what_is_no_size_is_refused(self, lake: Lake, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
        monkeypatch.setenv(LIMIT_SETTING, wrong)
        with pytest.raises(
            RefusedError, match=r"FIRN_CACHE_BYTES is .*; allowed: a number of bytes, or 0 for no manifest cache"
        ):
            ManifestCache.of(lake)
