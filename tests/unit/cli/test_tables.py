"""create, land, status, checkpoint."""

from pathlib import Path

from firnlake.iceberg.catalog import Lake
from firnlake.table import records
from tests.support.in_process import Firn
from tests.support.lakes import NOW, TABLE, append, row


def test_c21_a_lag_that_can_not_be_held_is_said_by_create_and_status(firn: Firn) -> None:
    lag = ("--property", "firn.max.compaction.lag.ms=60000", "--property", "firn.active.segments=1")
    created = firn("create", TABLE, *lag)
    assert created.code == 0
    assert created.err.startswith(f"firn: {TABLE}: max.compaction.lag.ms 60000 can't be met for the newest segments")
    assert "lag.ms 60000 can't be met" in firn("status", TABLE).out
    (status,) = firn("status", TABLE, "--json").json
    assert [f"firn: {TABLE}: {text}\n" for text in status["doubts"]] == [created.err]


def test_create_land_and_status_tell_the_same_story(firn: Firn, tmp_path: Path) -> None:
    created = firn(
        "create", TABLE, "--property", "firn.merge.segments=2", "--property", "firn.topic.a.b.null.keys=fail"
    )
    assert (created.code, created.err) == (0, "")
    assert created.out.startswith(f"created {TABLE} at file://")
    path = tmp_path / "a.jsonl"
    path.write_text('{"key":"k","value":null,"topic":"orders","partition":0,"offset":7,"timestamp":1}\n')
    other = tmp_path / "b.jsonl"
    other.write_text(path.read_text().replace('"k"', '"j"'))
    landed = firn("land", TABLE, path, other, "--json").json
    assert (landed["files"], landed["segments"], landed["records"]) == (2, 2, 2)
    (status,) = firn("status", TABLE, "--json").json
    assert (status["table"], status["snapshot_id"]) == (TABLE, landed["snapshot_id"])
    (part,) = status["partitions"]
    assert (part["topic"], part["partition"], part["dirty_ratio"]) == ("orders", 0, 1.0)
    (level,) = part["levels"]
    assert level | {"bytes": 0} == {
        "level": 0, "segments": 2, "records": 2, "bytes": 0, "tombstones": 2, "hidden": 0,
        "delete_files": 0, "base_offset": 7,
        "last_offset": 7,
    }  # fmt: skip
    assert part["due"]["merge"] == "2 of 2 L0 segments"
    assert part["due"]["full"].startswith("dirty ratio 1.000 > 0.5")


def test_c10_create_with_transactions(firn: Firn, lake: Lake) -> None:
    assert firn("create", TABLE, "--transactions").code == 0
    assert records.has_transactions(lake.table(TABLE))


def test_c16_checkpoint_prints_kafkas_text_and_nothing_else(
    firn: Firn, landed: str, lake: Lake, tmp_path: Path
) -> None:
    append(lake, [row(9, partition=3, level=3)])
    ran = firn("checkpoint", landed)
    assert (ran.code, ran.out, ran.err) == (0, "0\n1\norders 3 10\n", "")
    ran = firn("checkpoint", landed, "--output", tmp_path / "checkpoint")
    assert (ran.code, ran.out) == (0, "")
    assert (tmp_path / "checkpoint").read_text() == "0\n1\norders 3 10\n"


def test_status_has_a_clock(firn: Firn, landed: str, lake: Lake) -> None:
    with lake.table(landed).transaction() as transaction:
        transaction.set_properties({"firn.min.compaction.lag.ms": "5000"})
    (early,) = firn("status", landed, "--json", "--now", NOW).json
    (late,) = firn("status", landed, "--json", "--now", NOW + 5000).json
    assert early["partitions"][0]["cleanable_bytes"] == 0
    assert late["partitions"][0]["uncleanable_bytes"] == 0
