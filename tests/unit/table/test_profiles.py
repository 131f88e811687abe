"""Profiles give other defaults: when Kafka or WarpStream would clean, and how much at once (C21)."""

from dataclasses import replace

import pytest

from firnlake.errors import RefusedError
from firnlake.job.lane import Lane
from firnlake.lanes.due import due
from firnlake.table.partition import PartitionState
from firnlake.table.policies import Policies
from firnlake.table.policy import NAMES, Policy
from firnlake.table.profiles import PROFILES
from firnlake.table.segment import LANDED, MERGED, RUN, TAIL, Segment
from firnlake.table.settings import thresholds
from tests.support.lakes import NOW, TOPIC_PARTITION, segment


def policy(profile: str, **properties: str) -> Policy:
    named = {f"firn.{name.replace('_', '.')}": value for name, value in properties.items()}
    return Policies.parse("lake.t", {"firn.profile": profile} | named).default


def at(chosen: Policy, *segments: Segment) -> PartitionState:
    return PartitionState(TOPIC_PARTITION, tuple(sorted(segments, key=lambda one: one.order)), chosen, NOW)


def many(level: int, count: int = 100, **facts: int) -> list[Segment]:
    return [segment(f"s{n:03}", 1000 + n, 1000 + n, level, sequence_number=n, **facts) for n in range(count)]


OLD_TAIL = segment("tail", 0, 999, TAIL, bytes=100_000, committed_ms=0)
EXPIRED_TAIL = segment(
    "tail", 0, 99, TAIL, tombstones=99, stamped=99, first_horizon_ms=NOW, last_horizon_ms=NOW, bytes=100_000
)


def test_c21_firn_is_the_default() -> None:
    assert policy("firn") == Policies.parse("lake.t", {}).default == Policy()


def test_c12_the_defaults_are_those_of_warpstream_and_kafka() -> None:
    default = policy("firn")
    assert (default.merge_segments, default.clean_segments, default.tier_runs) == (32, 32, 10)
    assert (default.full_interval_ms, default.max_input_bytes) == (86_400_000, 128 << 30)
    assert default.min_cleanable_dirty_ratio == 0.5
    own = {f"firn.topic.t{number}.tier.runs": "5" for number in range(21)}
    *shown, last, more = thresholds("lake.t", policy("firn", tier_runs="4", min_cleanable_dirty_ratio="0.66"), own)
    assert shown[:6] == [
        "merge.segments = 32, as in WarpStream",
        "clean.segments = 32, as in WarpStream",
        "tier.runs = 4, set here",
        "min.cleanable.dirty.ratio = 0.66, set here",
        "full.interval.ms = 86400000 (1d), as in WarpStream",
        "max.input.bytes = 137438953472 (128GiB), as in WarpStream",
    ]
    assert (len(shown), last, more) == (25, "topic t8: tier.runs = 5", "1 more topic: `firn config lake.t` lists them")


@pytest.mark.parametrize(("segments", "is_due"), [(31, False), (32, True), (40, True), (100, True)])
def test_c13_landed_segments_are_merged_whatever_the_tail(segments: int, is_due: bool) -> None:
    for tail in (OLD_TAIL, replace(OLD_TAIL, data_bytes=segments + 1)):
        young = replace(tail, committed_ms=NOW)
        state = at(policy("firn"), *many(LANDED, segments, bytes=1), young)
        assert (due(Lane.MERGE, state) is not None) is is_due
        assert due(Lane.FULL, state) is None


@pytest.mark.parametrize("profile", PROFILES)
def test_c21_a_profile_names_properties_that_exist(profile: str) -> None:
    assert set(PROFILES[profile]) <= set(NAMES)
    assert policy(profile).profile == profile


@pytest.mark.parametrize("profile", PROFILES)
def test_c21_what_is_set_wins(profile: str) -> None:
    chosen = policy(profile, merge_segments="7", cleaner_dedupe_buffer_size="4100")
    assert (chosen.merge_segments, chosen.cleaner_dedupe_buffer_size) == (7, 4100)


def test_c12_kafkas_dirty_ratio_is_that_of_kafkas_profile() -> None:
    assert policy("kafka").min_cleanable_dirty_ratio == 0.5


def test_c21_a_topic_may_have_another_profile() -> None:
    policies = Policies.parse("lake.t", {"firn.topic.a.b.profile": "kafka", "firn.clean.segments": "9"})
    assert policies.default.profile == "firn"
    assert (policies.of("a.b").profile, policies.of("a.b").full_interval_ms) == ("kafka", -1)
    assert policies.of("a.b").clean_segments == 9
    assert policies.of("other").full_interval_ms > 0


def test_c26_an_unknown_profile_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"firn\.profile is 'redpanda'; allowed: 'firn', 'kafka' or 'warpstream'"):
        policy("redpanda")


@pytest.mark.parametrize(("lane", "level"), [(Lane.MERGE, LANDED), (Lane.CLEAN, MERGED), (Lane.TIER, RUN)])
def test_kafka_has_no_lane_but_full(lane: Lane, level: int) -> None:
    assert due(lane, at(policy("kafka"), *many(level), OLD_TAIL)) is None
    assert due(lane, at(policy("warpstream"), *many(level), OLD_TAIL)) is not None
    assert due(lane, at(policy("kafka"), *many(level)), force=True) is not None


def test_kafka_cleans_by_dirty_ratio_and_max_lag_alone() -> None:
    kafka = policy("kafka")
    assert due(Lane.FULL, at(kafka, *many(LANDED, bytes=1), OLD_TAIL)) is None
    assert due(Lane.FULL, at(kafka, EXPIRED_TAIL)) is None
    ratio = due(Lane.FULL, at(kafka, *many(LANDED, bytes=2000), OLD_TAIL))
    lag = due(Lane.FULL, at(policy("kafka", max_compaction_lag_ms="1000"), *many(LANDED, bytes=1), OLD_TAIL))
    assert ratio is not None
    assert lag is not None
    assert ratio.reason.startswith("dirty ratio")
    assert lag.reason.startswith("the oldest dirty record")


def test_warpstream_cleans_once_a_day_and_by_no_ratio() -> None:
    warpstream = policy("warpstream")
    fresh = segment("tail", 0, 999, TAIL, bytes=1)
    assert due(Lane.FULL, at(warpstream, *many(LANDED, bytes=2000), fresh)) is None
    daily = due(Lane.FULL, at(warpstream, *many(LANDED, bytes=1), OLD_TAIL))
    assert daily is not None
    assert daily.reason.startswith("the last full clean was")
    counts = (warpstream.merge_segments, warpstream.clean_segments, warpstream.tier_runs)
    assert counts == (32, 32, 10)
