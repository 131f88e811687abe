"""The triggerer's looks at a lake: due work is reported when it may have changed, once, and an outage is bridged. What
one table raises is told, and concerns no other.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from firnlake.airflow.watch import LONGEST_MS, Look, Place, Watch
from firnlake.iceberg.catalog import Lake
from firnlake.table import records
from tests.airflow.conftest import tear_manifest
from tests.support.faults import Gate, GatedCatalog, through
from tests.support.lakes import NOW, TABLE, append, row


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.embedded(tmp_path)


@pytest.fixture
def watched(lake: Lake) -> Watch:
    records.create(lake, TABLE, {"firn.merge.segments": "2", "firn.min.cleanable.dirty.ratio": "1"})
    return Watch(lake)


def due(watch: Watch, now_ms: int = NOW) -> dict[tuple[str, str, int], str] | None:
    look = watch.look(TABLE, now_ms)
    return None if look is None else dict(look.due)


def test_a_threshold_that_is_crossed_is_told_with_its_reason(lake: Lake, watched: Watch) -> None:
    append(lake, [row(0)])
    assert due(watched) == {}
    append(lake, [row(1)])
    found = due(watched)
    assert found is not None
    assert found.keys() == {("merge", "orders", 0)}
    assert "2 segments" in found["merge", "orders", 0]


def test_a_table_that_has_not_changed_is_not_sensed_again(lake: Lake, watched: Watch) -> None:
    append(lake, [row(0)])
    assert due(watched) == {}
    assert due(watched, NOW + LONGEST_MS - 1) is None
    append(lake, [row(1)])
    assert due(watched, NOW + LONGEST_MS - 1)


def test_time_alone_makes_things_due(lake: Lake, watched: Watch) -> None:
    lake.set_properties(TABLE, {"firn.max.compaction.lag.ms": str(LONGEST_MS)})
    append(lake, [row(0)])
    assert due(watched, NOW - 60_000) == {}
    assert {lane for lane, *_ in due(watched, NOW + LONGEST_MS) or ()} == {"full"}


def test_a_table_that_cannot_be_read_is_told_once_and_looked_at_again(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Watch(lake)
    with caplog.at_level(logging.INFO):
        assert [due(watch), due(watch)] == [None, None]
        assert [line.levelname for line in caplog.records] == ["WARNING"]
        assert TABLE in caplog.text
        records.create(lake, TABLE, {})
        assert due(watch) == {}
    assert caplog.records[-1].getMessage() == f"{TABLE} is watched again"


def test_r19_what_is_due_is_announced_once() -> None:
    merge, full = ("merge", "orders", 3), ("full", "orders", 3)
    look = Look("t.x", 1, {merge: "merge", full: "full"})
    before: tuple[set[Place], ...] = (set(), {merge}, {merge, full})
    assert [look.beyond(announced) for announced in before] == [["merge", "full"], ["full"], []]


def wrong_property(lake: Lake, table: str) -> Lake:
    lake.set_properties(table, {"schema.name-mapping.default": "[{"})
    return lake


def torn_manifest(lake: Lake, table: str) -> Lake:
    tear_manifest(lake, table)
    return lake


def unforeseen_error(lake: Lake, table: str) -> Lake:
    class Raising(Gate):
        def load(self, catalog: GatedCatalog, identifier: Any) -> Table:
            if table in (identifier, ".".join(identifier)):
                raise KeyError("metadata")
            return super().load(catalog, identifier)

    return through(lake, Raising())


@pytest.mark.parametrize("harm", [wrong_property, torn_manifest, unforeseen_error])
def test_r19_what_one_table_raises_ends_the_watch_of_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: Callable[[Lake, str], Lake]
) -> None:
    lake, harmed = Lake.embedded(tmp_path), f"watched.{harm.__name__}"
    for table in (harmed, "watched.orders"):
        records.create(lake, table, {})
        append(lake, [row(0)], table)
    watch = Watch(harm(lake, harmed))
    with caplog.at_level(logging.WARNING):
        looks = [watch.look(table, NOW) for table in (harmed, "watched.orders", harmed)]
    assert [look and look.table for look in looks] == [None, "watched.orders", None]
    (told,) = caplog.records
    assert harmed in told.getMessage()
