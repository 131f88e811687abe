"""Properties of lane `hide` that contradict others are refused (C21)."""

import pytest

from firnlake.errors import RefusedError
from firnlake.table.policies import Policies


def parsed(**properties: str) -> Policies:
    return Policies.parse("lake.t", {f"firn.{name.replace('_', '.')}": value for name, value in properties.items()})


def test_c21_off_unless_set_and_only_where_topics_are_compacted() -> None:
    assert not parsed().default.hides
    assert parsed(hide_max_lag_ms="0").default.hides
    assert not parsed(hide_max_lag_ms="0", cleanup_policy="delete").default.hides


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"hide_max_lag_ms": "-2"}, "property firn.hide.max.lag.ms is '-2'; allowed: greater than or equal to -1"),
        (
            {"hide_max_lag_ms": "10", "min_compaction_lag_ms": "20"},
            "property firn.hide.max.lag.ms is 10; allowed: at least min.compaction.lag.ms, which is 20, or -1",
        ),
        (
            {"hide_max_lag_ms": "10", "side_branches": "false"},
            "property firn.hide.max.lag.ms is 10; allowed: -1, because lane hide keeps its memory on a side branch",
        ),
    ],
)
def test_c21_what_is_wrong_or_contradictory_is_refused(properties: dict[str, str], message: str) -> None:
    with pytest.raises(RefusedError) as caught:
        parsed(**properties)
    assert message in str(caught.value)


def test_c21_a_topic_of_its_own() -> None:
    policies = Policies.parse("lake.t", {"firn.topic.orders.hide.max.lag.ms": "5000", "firn.tier.runs": "3"})
    assert (policies.of("orders").hides, policies.of("other").hides) == (True, False)
    assert policies.of("orders").tier_runs == 3
