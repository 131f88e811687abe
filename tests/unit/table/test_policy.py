"""Topic policies: Kafka's names, meanings and defaults, and refusals that say what is allowed (C21, C26)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnlake.errors import RefusedError
from firnlake.table.policies import TABLE_ONLY, Policies
from firnlake.table.policy import DAY_MS, LONG_MAX, NAMES, Policy
from firnlake.table.records import COLUMNS, RELEASED

KAFKA_DEFAULTS = {
    "min.compaction.lag.ms": 0,
    "max.compaction.lag.ms": LONG_MAX,
    "delete.retention.ms": DAY_MS,
    "segment.bytes": 1 << 30,
    "retention.ms": 7 * DAY_MS,
    "retention.bytes": -1,
}
"""As Kafka's documentation lists them under "Topic Configs"."""


SPECIAL = {
    "cleanup.policy": "compact",
    "null.keys": "fail",
    "offsets.restart": "late:17",
    "profile": "kafka",
    "maintenance": "none",
    "erase.history": "expire",
    "erase.object.versions": "none",
    "min.cleanable.dirty.ratio": "1",
    "tombstone.fraction": "1",
}
"""Allowed values of the properties that do not take any number."""


def parse(**properties: str) -> Policies:
    """Policies of a table with these properties, double underscores standing for dots."""
    return Policies.parse("lake.t", {name.replace("__", "."): value for name, value in properties.items()})


def refusal(properties: dict[str, str]) -> str:
    with pytest.raises(RefusedError) as caught:
        Policies.parse("lake.t", properties)
    return str(caught.value)


@pytest.mark.parametrize(("name", "default"), KAFKA_DEFAULTS.items())
def test_c21_kafkas_configs_have_kafkas_names_and_defaults(name: str, default: float) -> None:
    assert getattr(Policies.parse("lake.t", {}).of("any"), NAMES[name]) == default


def test_c21_firns_own_thresholds_have_the_contracts_defaults() -> None:
    policy = Policy()
    assert (policy.merge_segments, policy.clean_segments, policy.active_segments) == (32, 32, 0)
    assert policy.max_input_bytes == 128 << 30
    assert policy.null_keys == "quarantine"
    assert policy.cleanup_policy == "compact"


def test_every_config_says_what_it_means() -> None:
    assert all(field.description for field in Policy.model_fields.values())


def test_c21_a_table_property_holds_for_every_topic() -> None:
    policies = parse(firn__merge__segments="2", firn__min__cleanable__dirty__ratio="0.25")
    assert policies.of("a") == policies.of("b")
    assert policies.of("a").merge_segments == 2
    assert policies.of("a").min_cleanable_dirty_ratio == 0.25


def test_c21_a_topic_property_wins_and_the_rest_is_the_tables() -> None:
    policies = Policies.parse(
        "lake.t", {"firn.merge.segments": "2", "firn.clean.segments": "3", "firn.topic.a.merge.segments": "7"}
    )
    assert (policies.of("a").merge_segments, policies.of("a").clean_segments) == (7, 3)
    assert policies.of("b").merge_segments == 2


@pytest.mark.parametrize("topic", ["a.b", "a.b.c", "orders.v1-eu_west", "segment.bytes", "merge.segments.clean"])
@pytest.mark.parametrize("name", sorted(NAMES))
def test_c21_topics_may_hold_dots(topic: str, name: str) -> None:
    key = f"firn.topic.{topic}.{name}"
    value = SPECIAL.get(name, "61000")
    if name in TABLE_ONLY:
        assert key in refusal({key: value})
        return
    policies = Policies.parse("lake.t", {key: value})
    assert list(policies.topics) == [topic]
    assert str(getattr(policies.of(topic), NAMES[name])).removesuffix(".0") == value


@pytest.mark.parametrize("topic", ["a.delete", "a", "-", "__stage_x", "t" * 249, "x.min"])
@pytest.mark.parametrize("name", sorted(NAMES.keys() - TABLE_ONLY))
def test_c21_a_topic_in_quotes_ends_where_they_do(topic: str, name: str) -> None:
    value = str(Policy.model_fields[NAMES[name]].default)
    policies = Policies.parse("lake.t", {f'firn.topic."{topic}".{name}': value})
    assert list(policies.topics) == [topic]


def test_c26_a_topic_property_with_and_without_quotes_is_refused() -> None:
    twice = {"firn.topic.a.merge.segments": "2", 'firn.topic."a".merge.segments': "3"}
    assert "set twice for topic a" in refusal(twice)


@pytest.mark.parametrize("key", ['firn.topic."a.merge.segments', 'firn.topic."".merge.segments', 'firn.topic."a".x'])
def test_c26_quotes_that_end_nowhere_are_part_of_the_name(key: str) -> None:
    if key.endswith("x"):
        assert key in refusal({key: "2"})
    else:
        assert [one[:1] for one in Policies.parse("lake.t", {key: "2"}).topics] == ['"']


def test_an_adopted_table_is_left_to_others_until_its_owner_says_otherwise() -> None:
    assert Policies.parse("lake.t", {}).default.maintained == {"manifests", "snapshots"}
    assert Policies.parse("lake.t", {COLUMNS: "{}"}).default.maintained == frozenset()
    chosen = Policies.parse("lake.t", {COLUMNS: "{}", "firn.maintenance": "snapshots, orphans"}).default
    assert chosen.maintained == {"orphans", "snapshots"}


def test_the_documents_of_adoption_are_no_settings() -> None:
    assert Policies.parse("lake.t", {RELEASED: "{}"}) == Policies(Policy(), {})
    others = {"firn.maintenance": "snapshots,manifests", "firn.offsets.restart": "late"}
    assert Policies.parse("lake.t", {COLUMNS: "{}", **others}) == Policies(Policy(offsets_restart="late"), {})


def test_properties_that_are_not_firns_are_left_to_their_owners() -> None:
    policies = Policies.parse("lake.t", {"write.parquet.compression-codec": "zstd", "firn-plan": "{}", "owner": "x"})
    assert policies == Policies(Policy(), {})


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("cleanup.policy", "shred", "'compact', 'delete' or 'compact,delete'"),
        ("cleanup.policy", "Compact", "'compact'"),
        ("cleanup.policy", "", "'compact'"),
        ("cleanup.policy", "compact,", "'compact'"),
        ("cleanup.policy", "compact;delete", "'compact'"),
        ("cleanup.policy", "delete,delete", "'compact'"),
        ("cleanup.policy", "compact,delete,tier", "'compact'"),
        ("retention.ms", "-2", "greater than or equal to -1"),
        ("retention.ms", "7 years", "milliseconds, or a number with a unit (d, h, min, s, ms), such as 7d"),
        ("retention.bytes", "-2", "greater than or equal to -1"),
        ("retention.bytes", str(2**63), "less than or equal to 9223372036854775807"),
        ("min.cleanable.dirty.ratio", "1.01", "less than or equal to 1"),
        ("min.cleanable.dirty.ratio", "-0.1", "greater than or equal to 0"),
        ("min.cleanable.dirty.ratio", "nan", "less than or equal to 1"),
        ("min.cleanable.dirty.ratio", "half", "a valid number"),
        ("min.compaction.lag.ms", "-1", "greater than or equal to 0"),
        ("min.compaction.lag.ms", "-1d", "milliseconds, or a number with a unit"),
        ("max.compaction.lag.ms", "0", "greater than or equal to 1"),
        ("max.compaction.lag.ms", str(2**63), "less than or equal to 9223372036854775807"),
        ("delete.retention.ms", "-1", "greater than or equal to 0"),
        ("delete.retention.ms", str(LONG_MAX), "less than or equal to 31536000000000"),
        ("segment.bytes", "0", "greater than or equal to 1"),
        ("active.segments", "-1", "greater than or equal to 0"),
        ("merge.segments", "1", "greater than or equal to 2"),
        ("merge.segments", "2.5", "a valid integer"),
        ("merge.segments", "", "a valid integer"),
        ("clean.segments", "0", "greater than or equal to 1"),
        ("clean.tail.fraction", "0", "greater than 0"),
        ("full.interval.ms", "-2", "greater than or equal to -1"),
        ("full.interval.ms", "daily", "milliseconds, or a number with a unit"),
        ("tombstone.fraction", "-0.01", "greater than or equal to 0"),
        ("tombstone.fraction", "1.01", "less than or equal to 1"),
        ("tier.runs", "1", "greater than or equal to 2"),
        ("max.input.bytes", "0", "greater than or equal to 1"),
        ("plan.max.bytes", "none", "bytes, or a number with a unit (KB, MB, GB, KiB, MiB, GiB, …), such as 512MiB"),
        ("plan.max.records", "0", "greater than or equal to 1"),
        ("profile", "Kafka", "'firn', 'kafka' or 'warpstream'"),
        ("cleaner.dedupe.buffer.size", "-1", "greater than or equal to 1"),
        ("null.keys", "drop", "'quarantine' or 'fail'"),
        ("job.max.age.ms", "59999", "greater than or equal to 60000"),
        ("job.max.age.ms", str(3 * DAY_MS), "less than or equal to 172800000"),
        ("run.max.bytes", "0", "greater than or equal to 1"),
        ("maintenance", "", "none, or some of manifests, orphans, snapshots, separated by commas"),
        ("maintenance", "true", "none, or some of"),
        ("maintenance", "none,orphans", "none, or some of"),
    ],
)
def test_c26_a_wrong_value_is_refused_with_property_value_and_what_is_allowed(
    name: str, value: str, allowed: str
) -> None:
    message = refusal({f"firn.{name}": value})
    assert f"table lake.t: property firn.{name} is {value!r}; allowed: {allowed}" in message


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("retention.ms", "7d", 7 * DAY_MS),
        ("delete.retention.ms", "90 min", 5_400_000),
        ("max.compaction.lag.ms", "1h", 3_600_000),
        ("full.interval.ms", "250ms", 250),
        ("segment.bytes", "512MB", 512_000_000),
        ("segment.bytes", "512MiB", 512 << 20),
        ("retention.bytes", "1.5 GiB", 3 << 29),
    ],
)
def test_durations_and_sizes_may_have_a_unit(name: str, text: str, expected: int) -> None:
    assert getattr(Policies.parse("lake.t", {f"firn.{name}": text}).default, NAMES[name]) == expected


@pytest.mark.parametrize(
    ("value", "compacts", "deletes"),
    [
        ("compact", True, False),
        (" delete ", False, True),
        ("compact,delete", True, True),
        ("delete,compact", True, True),
        ("delete , compact", True, True),
    ],
)
def test_c19_cleanup_policy_is_kafkas_list(value: str, compacts: bool, deletes: bool) -> None:
    policy = Policies.parse("lake.t", {"firn.cleanup.policy": value}).default
    assert (policy.compacts, policy.deletes) == (compacts, deletes)


def test_c19_every_topic_of_a_table_may_have_a_policy_of_its_own() -> None:
    policies = Policies.parse(
        "lake.t", {"firn.topic.logs.cleanup.policy": "delete", "firn.topic.logs.retention.ms": "1000"}
    )
    assert (policies.of("logs").cleanup_policy, policies.of("logs").retention_ms) == ("delete", 1000)
    assert policies.of("users").cleanup_policy == "compact"


@pytest.mark.parametrize("policy", ["compact,delete", "delete, compact"])
def test_c21_retention_below_the_lag_is_refused(policy: str) -> None:
    properties = {"firn.cleanup.policy": policy, "firn.min.compaction.lag.ms": "2000", "firn.retention.ms": "1999"}
    message = refusal(properties)
    assert "firn.retention.ms is 1999; allowed: at least min.compaction.lag.ms, which is 2000 (2s), or -1" in message
    for others in (
        {"firn.retention.ms": "2000"},
        {"firn.retention.ms": "-1"},
        {"firn.cleanup.policy": "compact"},
        {"firn.cleanup.policy": "delete"},
    ):
        Policies.parse("lake.t", properties | others)  # no refusal


def test_c26_a_wrong_topic_value_names_the_topics_property() -> None:
    policies = Policies.parse("lake.t", {"firn.merge.segments": "2", "firn.topic.a.b.merge.segments": "many"})
    assert "property firn.topic.a.b.merge.segments is 'many'" in policies.of("a.b").problem
    assert not policies.of("other").problem
    with pytest.raises(RefusedError, match="is 'many'"):
        policies.check()
    assert policies.check(["other"]) is policies


def test_c26_a_wrong_value_for_one_run_is_refused_whatever_topic_it_is_for() -> None:
    with pytest.raises(RefusedError, match="is 'many'"):
        Policies.parse("lake.t", {}, {"firn.topic.a.merge.segments": "many"})


def test_c21_contradicting_lags_are_refused() -> None:
    message = refusal({"firn.min.compaction.lag.ms": "2000", "firn.max.compaction.lag.ms": "1000"})
    assert "firn.min.compaction.lag.ms is 2000" in message
    assert "at most max.compaction.lag.ms, which is 1000 (1s)" in message


def test_c21_a_topic_may_not_contradict_its_table() -> None:
    properties = {"firn.min.compaction.lag.ms": "2000", "firn.topic.a.max.compaction.lag.ms": "1000"}
    message = Policies.parse("lake.t", properties).of("a").problem
    assert "2000" in message
    assert "1000" in message
    assert "firn.topic.a." in message


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        (
            {"segment.bytes": "11", "max.input.bytes": "10"},
            "bytes is 11; allowed: at most max.input.bytes, which is 10",
        ),
        ({"segment.bytes": "11", "plan.max.bytes": "10"}, "bytes is 11; allowed: at most plan.max.bytes, which is 10"),
        ({"segment.bytes": "11", "run.max.bytes": "10"}, "bytes is 11; allowed: at most run.max.bytes, which is 10"),
        ({"cleaner.dedupe.buffer.size": "47"}, "size is 47; allowed: room for a key, which takes 24 bytes of a buffer"),
    ],
)
def test_c21_sizes_that_exclude_each_other_are_refused(properties: dict[str, str], message: str) -> None:
    assert message in refusal({f"firn.{name}": value for name, value in properties.items()})


def test_equal_lags_do_not_contradict() -> None:
    policy = parse(firn__min__compaction__lag__ms="5", firn__max__compaction__lag__ms="5").default
    assert policy.min_compaction_lag_ms == policy.max_compaction_lag_ms == 5


@pytest.mark.parametrize(
    "key",
    [
        "firn.merge.segment",
        "firn.",
        "firn.topic.",
        "firn.topic.merge.segments",
        "firn.topic..merge.segments",
        "firn.topic.a",
        "firn.topic.a.merge_segments",
        "firn.merge_segments",
        "firn.Merge.Segments",
    ],
)
def test_c26_an_unknown_name_is_refused_and_the_known_ones_are_listed(key: str) -> None:
    message = refusal({key: "2"})
    assert f"table lake.t: property {key} = '2' is unknown" in message
    assert "merge.segments" in message


_words = st.text(max_size=12) | st.sampled_from(["", "0", "1", "-1", "0.5", "nan", "inf", "compact", "9" * 40])
_names = (
    st.text(max_size=20)
    | st.sampled_from(sorted(NAMES)).map("firn.{}".format)
    | st.tuples(st.text(max_size=6), st.sampled_from(sorted(NAMES))).map("firn.topic.{0[0]}.{0[1]}".format)
    | st.text(max_size=8).map("firn.{}".format)
    | st.sampled_from(sorted(NAMES))
)


@given(st.dictionaries(_names, _words, max_size=6))
def test_c21_any_properties_give_policies_or_a_refusal(properties: dict[str, str]) -> None:
    try:
        found: Policies | str = Policies.parse("lake.t", properties)
    except RefusedError as error:
        found = str(error)
    if isinstance(found, str):
        # A contradiction names the property of the two that has the smaller say, which may be at its default.
        named = ("firn.", *(f"{name} " for name in properties))
        assert found.removeprefix("table lake.t: property ").startswith(named)
    else:
        assert all(found.of(topic).merge_segments >= 2 for topic in ["x", *found.topics])
