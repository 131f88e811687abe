"""The cache of manifests: one that is damaged changes no answer, nothing is read twice, and its limit holds (C26)."""

from pathlib import Path

import pytest
from pyiceberg.manifest import ManifestContent
from pyiceberg.typedef import Record

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.plan.read_states import sense_table
from firnlake.table.arrays import Segments
from firnlake.table.segment_cache import LIMIT_SETTING, ManifestCache
from firnlake.table.segments import read
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.foreign import append_again, append_empty_file, delete_rows, written_under_no_spec
from tests.support.lakes import NOW, TABLE, append, append_file, row


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
    append_again(lake, append_file(lake, [row(9)]), Record("orders", 1, None))


def strays(lake: Lake) -> None:
    append(lake, [row(0), row(5) | {"topic": None}])
    written_under_no_spec(lake, [row(4), row(6, partition=3)])
    written_under_no_spec(lake, [row(4) | {"topic": None}])


def problems(lake: Lake) -> None:
    append(lake, [row(0, level=7), row(3, level=1), row(0, partition=-1)])
    append(lake, [row(1) | {"timestamp": None}])
    written_under_no_spec(lake, [row(8), row(9, level=3)])


def expired(lake: Lake) -> None:
    append(lake, [row(0)])
    first = lakes.snapshot(lake)
    assert first is not None
    append(lake, [row(1)])
    lake.table(TABLE).maintenance.expire_snapshots().by_id(first).commit()


def renamed(lake: Lake) -> None:
    """Under its new name the column that was called so means something else."""
    for old, new in (("value", "other"), ("key", "value"), ("other", "key")):
        with lake.table(TABLE).update_schema() as update:
            update.rename_column(old, new)


@pytest.fixture
def cache(lake: Lake) -> ManifestCache:
    found = ManifestCache.of(lake)
    assert found is not None
    return found


def segments(lake: Lake, cache: ManifestCache | None = None) -> Segments:
    return read(lake.table(TABLE), TABLE, cache=cache)


def packs(lake: Lake) -> list[Path]:
    return sorted(lake.cache_folder.rglob("*.arrow"))


def lose_the_manifests(lake: Lake) -> None:
    """From now on nothing can read a manifest of data files."""
    table = lake.table(TABLE)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    for manifest in snapshot.manifests(table.io):
        if manifest.content == ManifestContent.DATA:
            on_disk(manifest.manifest_path).unlink()


@pytest.mark.usefixtures("table")
def test_whatever_others_left_segments_are_the_same_and_no_manifest_is_read_twice(
    lake: Lake, cache: ManifestCache
) -> None:
    for change in (append_empty_file, plain, row_deletes, strays, copies, problems, expired, renamed):
        change(lake)
        assert segments(lake, cache) == segments(lake)
    expected = segments(lake)
    assert lakes.together(*[lambda: segments(lake, cache)] * 4) == [expected] * 4
    lose_the_manifests(lake)
    assert segments(lake, cache) == expected


@pytest.mark.usefixtures("table")
def test_a_damaged_pack_is_read_again(lake: Lake, cache: ManifestCache) -> None:
    plain(lake)
    expected = segments(lake, cache)
    (pack,) = packs(lake)
    content = pack.read_bytes()
    middle = len(content) // 2
    for damaged in (content[:middle], content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :], b""):
        pack.write_bytes(damaged)
        assert segments(lake, cache) == expected
        assert [one.read_bytes() for one in packs(lake)] == [content]


@pytest.mark.usefixtures("table")
def test_the_limit_holds_and_those_used_longest_ago_go_first(lake: Lake, tmp_path: Path) -> None:
    append(lake, [row(0)])
    segments(lake, ManifestCache(tmp_path / "packs"))
    (old,) = (tmp_path / "packs").rglob("*.arrow")
    append(lake, [row(1)])
    segments(lake, ManifestCache(tmp_path / "packs", limit=old.stat().st_size * 3 // 2))
    (left,) = (tmp_path / "packs").rglob("*.arrow")
    assert left != old
    (tmp_path / "file").write_text("a folder that can't be written is no obstacle")
    assert segments(lake, ManifestCache(tmp_path / "file")) == segments(lake)


def test_c26_it_is_kept_in_the_home_of_the_lake_unless_the_setting_says_0(
    lake: Lake, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain(lake)
    monkeypatch.setenv(LIMIT_SETTING, "0")
    expected, _ = sense_table(lake, table, NOW)
    assert packs(lake) == []
    for wrong in ("", "many", "-1", "1.5"):
        monkeypatch.setenv(LIMIT_SETTING, wrong)
        with pytest.raises(RefusedError, match=r"FIRN_CACHE_BYTES is .*; allowed: a number of bytes, or 0 for no"):
            ManifestCache.of(lake)
    monkeypatch.delenv(LIMIT_SETTING)
    assert sense_table(lake, table, NOW)[0] == expected
    assert len(packs(lake)) == 1


def problem(lake: Lake, cache: ManifestCache | None = None) -> str | None:
    (segment,) = segments(lake, cache)
    return segment.problem
