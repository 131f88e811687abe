"""explain tells which rule keeps a record, where a segment goes, and which commit took what is gone."""

import pytest

from firnlake.iceberg.catalog import Lake
from tests.support.in_process import Firn
from tests.support.lakes import NOW, TABLE, Fates, append, only_plan, ready, row
from tests.support.publishing import publish


@pytest.fixture
def published(landed: str, lake: Lake) -> str:
    """The plan by which offset 1 superseded offset 0; a tombstone of the same key is the log end."""
    assert landed == TABLE
    plan = publish(lake, ready(lake, only_plan(lake), [row(1)], Fates(superseded=1)).identifier).plan_id
    append(lake, [row(2, value=None)])
    return plan


def test_people_read_rules_times_and_commits(firn: Firn, published: str) -> None:
    out = firn("explain", TABLE, "--key", "k", "--now", NOW).out
    assert "orders-0 offset 1, level 3, in file:" in out
    assert "kept, C2: superseded by offset 2; lane full removes it once it is" in out
    assert "orders-0 offset 2, level 0, a tombstone, in file:" in out
    assert "kept, C4: a tombstone, but it has the highest offset of its topic partition" in out
    assert "orders-0 offset 0, level 0, removed\n  C2: superseded by offset 1: snapshot " in out
    assert f"(lane full, plan {published}: forced, dirty ratio 1.000)" in out
    assert out.endswith("history: searched all commits that removed records: 1\n")


def test_programs_read_the_same_as_json(firn: Firn, published: str) -> None:
    found = firn("explain", TABLE, "--key", "k", "--now", NOW, "--json").json
    assert found["key"] == [{"text": "k", "hex": "6b"}]
    first, second = found["kept"]
    assert first["record"]["topic_partition"] == "orders-0"
    assert (first["record"]["timestamp"], first["record"]["delete_horizon"]) == ("2023-11-14T22:12:20.000Z", None)
    assert (first["reason"]["rule"], second["reason"]["rule"]) == ("C2", "C4")
    (removed,) = found["removed"]
    assert (removed["record"]["offset"], removed["commit"]["plan"]) == (0, published)


def test_a_key_that_is_nowhere_is_no_error(firn: Firn, published: str) -> None:
    ran = firn("explain", TABLE, "--key", "hex:00", "--partition", "orders-0")
    assert (ran.code, ran.err) == (0, "")
    assert "no record of this key is in the table" in ran.out
    assert published not in ran.out


def test_a_wait_says_until_when(firn: Firn, landed: str, lake: Lake) -> None:
    with lake.table(landed).transaction() as transaction:
        transaction.set_properties({"firn.min.compaction.lag.ms": "10800000"})
    out = firn("explain", landed, "--segment", "orders-0@0", "--now", NOW).out
    assert "due now in lane merge: 2 of 2 L0 segments (plan " in out
    assert "C11: is younger than min.compaction.lag.ms = 3h, until 2023-11-15T01:13:19.000Z (in 2 h 59 min)" in out


def test_a_topic_partition_says_what_is_due_missing_and_in_the_way(firn: Firn, landed: str, lake: Lake) -> None:
    with lake.table(landed).transaction() as transaction:
        transaction.set_properties({"firn.min.compaction.lag.ms": "10800000"})
    out = firn("explain", landed, "orders-0", "--now", NOW).out
    assert "merge: due, 2 segments (plan " in out
    assert "full: not due, C11: nothing may be cleaned: segment orders-0 L0 [0..0]" in out
    assert "blocked by C11: segment orders-0 L0 [0..0] " in out
    assert "until 2023-11-15T01:13:19.000Z (in 2 h 59 min)" in out
    found = firn("explain", landed, "orders-0", "--now", NOW, "--json").json
    assert (found["topic_partition"], found["head_segments"], found["cleaned_through"]) == ("orders-0", 2, None)
    (merge,) = [one for one in found["lanes"] if one["lane"] == "merge"]
    assert merge["reason"]["text"] == "2 of 2 L0 segments"


def test_a_segment_that_is_gone_names_its_commit(firn: Firn, landed: str, lake: Lake) -> None:
    path = only_plan(lake).inputs[0].path
    done = publish(lake, ready(lake, only_plan(lake), [row(1)], Fates(superseded=1)).identifier)
    out = firn("explain", landed, "--segment", path.rpartition("/")[2]).out
    assert f"no longer live: removed by snapshot {done.snapshot_id} of " in out
    (found,) = firn("explain", landed, "--segment", path, "--json").json
    assert (found["segment"]["path"], found["removed_by"]["plan"]) == (path, done.plan_id)
