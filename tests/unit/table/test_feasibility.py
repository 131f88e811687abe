"""Thresholds that can't meet max.compaction.lag.ms are found (C21)."""

from typing import Any

import pytest

from firnlake.iceberg.catalog import Lake
from firnlake.inspect.status.gather import status_of
from firnlake.table.policies import by_itself
from firnlake.table.policy import Policy
from tests.support.lakes import NOW, TABLE, append, row

HOUR_MS = 3_600_000


class TestByItself:
    """What no rate of arrivals changes."""

    def test_nothing_is_found_where_no_lag_is_declared_or_nothing_is_compacted(self) -> None:
        for chosen in (Policy(active_segments=9), Policy(cleanup_policy="delete", max_compaction_lag_ms=1)):
            assert list(by_itself(chosen)) == []

    @pytest.mark.parametrize(
        ("facts", "about"),
        [
            ({"min_compaction_lag_ms": HOUR_MS}, "min.compaction.lag.ms"),
            ({"active_segments": 1}, "active.segments"),
        ],
    )
    def test_c21_the_property_that_is_in_the_way_is_named(self, facts: dict[str, Any], about: str) -> None:
        assert list(by_itself(Policy(max_compaction_lag_ms=HOUR_MS))) == []
        (finding,) = by_itself(Policy(max_compaction_lag_ms=HOUR_MS, **facts))
        assert finding.about == about
        assert about in str(finding)
        assert f"max.compaction.lag.ms {HOUR_MS}" in str(finding)


class TestStatus:
    """Status says it for a table's topics, as `firn create` does."""

    def status(self, lake: Lake, now_ms: int = NOW, **properties: str) -> tuple[str, ...]:
        with lake.table(TABLE).transaction() as transaction:
            transaction.set_properties({f"firn.{name.replace('_', '.')}": value for name, value in properties.items()})
        status = status_of(lake, TABLE, now_ms)
        return status.details().doubts

    @pytest.mark.usefixtures("table")
    def test_nothing_declared_is_nothing_said(self, lake: Lake) -> None:
        append(lake, [row(0)])
        assert self.status(lake, active_segments="3") == ()

    @pytest.mark.usefixtures("table")
    def test_c21_by_itself_for_the_table_and_for_topics_of_their_own(self, lake: Lake) -> None:
        (common,) = self.status(lake, max_compaction_lag_ms="60000", active_segments="1")
        assert common.startswith("max.compaction.lag.ms 60000 can't be met for the newest segments (active.segments 1)")
        again, topic = self.status(lake, topic_a_active_segments="2")
        assert again == common
        assert topic.startswith(
            "topic a: max.compaction.lag.ms 60000 can't be met for the newest segments (active.segments 2)"
        )
