"""A run may override when and how much, never what may go."""

from pathlib import Path

import pytest

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.job.lane import Lane
from firnlake.plan.make import plan_table
from firnlake.plan.read_states import Scope
from firnlake.table.policy import DEFAULT, NAMES
from firnlake.table.profiles import PROFILES
from tests.support.in_process import Firn, command_on, refused
from tests.support.lakes import NOW
from tests.support.topics import DAY, Record, Topic

THRESHOLDS = {
    "min.cleanable.dirty.ratio", "max.compaction.lag.ms", "full.interval.ms", "tombstone.fraction",
    "merge.segments", "clean.segments", "clean.tail.fraction", "tier.runs",
    "convert.equality.deletes", "position.deletes.max",
    "profile",
}  # fmt: skip
"""When each lane works."""
BUDGETS = {
    "max.input.bytes", "plan.max.bytes", "plan.max.records", "run.max.bytes", "cleaner.dedupe.buffer.size",
}  # fmt: skip
"""How much it takes."""

HOUR = 3_600_000
NEWER = [Record(0, b"k", b"1", timestamp_ms=NOW - HOUR), Record(1, b"k", b"2", timestamp_ms=NOW - HOUR)]
DELETED = [Record(0, b"k", None, timestamp_ms=NOW - HOUR), Record(1, b"z", b"1", timestamp_ms=NOW - HOUR)]
KEYLESS = [Record(0, None, b"1", timestamp_ms=NOW - HOUR), Record(1, b"k", b"2", timestamp_ms=NOW - HOUR)]


@pytest.fixture
def firn(lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Firn:
    """Run ``firn`` in this process, on the lake of the tests."""
    return command_on(lake, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("rule", "override", "batch"),
    [
        ({"min_compaction_lag_ms": str(DAY)}, "firn.min.compaction.lag.ms=0", NEWER),
        ({"min_compaction_lag_ms": str(DAY)}, "firn.topic.orders.min.compaction.lag.ms=0", NEWER),
        ({"min_compaction_lag_ms": str(DAY)}, 'firn.topic."orders".min.compaction.lag.ms=0', NEWER),
        ({"active_segments": "9"}, "firn.active.segments=0", NEWER),
        ({"cleanup_policy": "delete"}, "firn.cleanup.policy=compact", NEWER),
        ({"delete_retention_ms": str(7 * DAY)}, "firn.delete.retention.ms=0", DELETED),
        ({"null_keys": "fail"}, "firn.null.keys=quarantine", KEYLESS),
    ],
)
def test_r8_no_override_takes_what_the_tables_rules_keep(
    firn: Firn, topic: Topic, rule: dict[str, str], override: str, batch: list[Record]
) -> None:
    topic.create(**rule).land(batch)
    asked = (topic.table, "--lane", "full", "--force", "--property", override)
    runs = [firn("run", *asked, "--now", now) for now in (NOW, NOW + 1000)]
    assert topic.offsets() == [0, 1]
    for ran in runs:
        refused(ran, f"table {topic.table}: property {override.partition('=')[0]} can't be overridden; allowed: a")


def test_r8_no_plan_is_written_that_a_later_command_would_publish(firn: Firn, topic: Topic, tmp_path: Path) -> None:
    topic.create(min_compaction_lag_ms=str(DAY)).land(NEWER)
    override = "firn.min.compaction.lag.ms=0"
    asked = (topic.table, "--lane", "full", "--force", "--now", NOW, "--property", override)
    refused(firn("plan", *asked, "--write", tmp_path), "firn.min.compaction.lag.ms can't be overridden")
    assert [*tmp_path.iterdir()] == []


def test_r8_whatever_is_no_threshold_and_no_budget_is_refused(topic: Topic) -> None:
    """A property that is new is refused until it is listed."""

    def override(name: str) -> None:
        value = str(getattr(DEFAULT, NAMES[name]))
        plan_table(topic.lake, topic.table, Lane.MERGE, NOW, scope=Scope(properties={f"firn.{name}": value}))

    topic.create()
    for name in THRESHOLDS | BUDGETS:
        override(name)
    for name in NAMES.keys() - THRESHOLDS - BUDGETS:
        with pytest.raises(RefusedError, match=rf"property firn\.{name} can't be overridden"):
            override(name)
    assert {name for defaults in PROFILES.values() for name in defaults} <= THRESHOLDS | BUDGETS


@pytest.mark.parametrize("name", ["write.format.default", "firn.columns", "owner"])
def test_r8_nor_is_anything_else_taken_and_ignored(firn: Firn, topic: Topic, name: str) -> None:
    topic.create()
    refused(
        firn("run", topic.table, "--lane", "full", "--property", f"{name}=x"), f"property {name} can't be overridden"
    )
