"""Equality deletes that land while a plan is under way: by other columns than the key they may hide the newer record of
a key alone, and then the older one must not go (C2, C3, C27)."""

import pytest

from firnlake.engine.engine import Engine
from firnlake.errors import ConflictError
from firnlake.iceberg.catalog import Lake
from tests.support.publishing import publish
from tests.support.topics import DAY, NOW
from tests.support.upserts import Row, Upserts, upserts


@pytest.fixture
def table(lake: Lake, engine: Engine) -> Upserts:
    """Key 1 has an older record at 0 and a newer one at 2."""
    table = upserts(lake, engine)
    table.append(Row(0, 1, "a"), Row(1, 2, "a"))
    table.append(Row(2, 1, "b"), Row(3, 3, "a"))
    return table


@pytest.mark.parametrize("columns", [("city",), ("id", "city")])
def test_c2_c3_a_delete_that_hides_the_newer_record_alone_is_a_conflict(
    table: Upserts, columns: tuple[str, ...]
) -> None:
    (stage,) = table.topic.validated(table.topic.plans("full", force=True))
    table.delete(columns, tuple({"id": 1, "city": "b"}[name] for name in columns))
    assert table.seqs() == [0, 1, 3], "readers see the older record of the key"
    with pytest.raises(ConflictError, match="a row-level delete was added to"):
        publish(table.topic.lake, stage)
    assert table.seqs() == [0, 1, 3]
    table.topic.clean("full", NOW + DAY, force=True)
    assert table.seqs() == [0, 1, 3]


def test_c27_a_delete_by_the_key_hides_both_and_is_none(table: Upserts) -> None:
    (stage,) = table.topic.validated(table.topic.plans("full", force=True))
    table.delete(["id", "shard"], (1, 0))
    publish(table.topic.lake, stage)
    assert table.seqs() == [1, 3]


def test_c2_c3_c13_c27_a_merge_supersedes_nothing_and_meets_no_conflict(table: Upserts) -> None:
    (stage,) = table.topic.validated(table.topic.plans("merge", force=True))
    table.delete(["city"], ("b",))
    publish(table.topic.lake, stage)
    assert table.seqs() == [0, 1, 3]
    table.topic.clean("full", NOW + DAY, force=True)
    assert table.seqs() == [0, 1, 3]
