"""Plans: which segments go in, and a document that nobody changes unseen."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.clock import from_ms
from pipeline.errors import RefusedError
from pipeline.lake import Lake
from pipeline.lake.topic_partition import TopicPartition
from pipeline.plan import Input, Plan, plan_lanes, plan_partition, plan_table, plan_work
from pipeline.policy import Policies, Policy
from pipeline.segments import Segment, Segments
from pipeline.segments.segment import LANDED, MERGED, RUN, TAIL
from pipeline.sense import Lane, PartitionState, Scope, sense
from tests.support import lakes
from tests.support.lakes import NOW, TABLE, TOPIC_PARTITION, append, row, segment

LEVEL_IN = {Lane.MERGE: LANDED, Lane.CLEAN: MERGED, Lane.TIER: RUN}


@st.composite
def partitions(draw: st.DrawFn) -> tuple[Segment, ...]:
    """A topic partition as a few months may leave it: gaps, overlaps, late and empty segments, any level and size."""
    found: list[Segment] = []
    base = draw(st.integers(0, 20))
    for number in range(draw(st.integers(0, 14))):
        start = draw(st.integers(0, base)) if draw(st.integers(0, 5)) == 0 else base
        last = start + draw(st.integers(0, 30))
        records = draw(st.integers(0, last - start + 1)) if draw(st.booleans()) else last - start + 1
        oldest, newest = sorted(draw(st.tuples(st.integers(0, 2000), st.integers(0, 2000))))
        found.append(
            segment(
                f"s{number:02}",
                start if records else -1,
                last if records else -1,
                draw(st.sampled_from((LANDED, LANDED, LANDED, MERGED, MERGED, RUN, TAIL))),
                records=records,
                bytes=draw(st.integers(1, 1000)),
                newest_ms=NOW - oldest,
                oldest_ms=NOW - newest,
                tombstones=draw(st.integers(0, records)),
                sequence_number=draw(st.integers(1, 8)),
                keys=draw(st.none() | st.integers(0, records)),
            )
        )
        base = max(base, last + draw(st.integers(0, 5)))
    return tuple(sorted(found, key=lambda one: one.order))


policies = st.builds(
    Policy,
    min_cleanable_dirty_ratio=st.floats(0, 1),
    min_compaction_lag_ms=st.sampled_from((0, 0, 500, 1500)),
    active_segments=st.integers(0, 3),
    merge_segments=st.integers(2, 5),
    clean_segments=st.integers(1, 4),
    clean_tail_fraction=st.floats(0.01, 2),
    tier_runs=st.integers(2, 4),
    tier_size_ratio=st.sampled_from((1.0, 2.0, 1000.0)),
    max_input_bytes=st.sampled_from((600, 10**9)),
    plan_max_bytes=st.sampled_from((800, 2500, 10**9)),
    plan_max_records=st.sampled_from((40, 10**9)),
    run_max_bytes=st.sampled_from((1500, 10**9)),
    run_max_records=st.sampled_from((60, 10**9)),
    run_max_keys=st.sampled_from((30, 10**9)),
    cleaner_dedupe_buffer_size=st.sampled_from((1200, 10**12)),
    cleaner_threads=st.integers(1, 2),
)


def planned(lane: Lane, segments: tuple[Segment, ...], policy: Policy, force: bool) -> Plan | None:
    state = PartitionState(TOPIC_PARTITION, segments, policy, NOW)
    return plan_partition(lane, Segments.of(TABLE, "uuid", 7, segments), state, force)


def all_plans(segments: tuple[Segment, ...], policy: Policy) -> list[tuple[Plan, bool]]:
    """The plan of every lane that has one, forced and not."""
    plans = ((planned(lane, segments, policy, force), force) for lane in Lane for force in (False, True))
    return [(plan, force) for plan, force in plans if plan]


@settings(max_examples=150)
@given(partitions(), policies)
def test_c17_plans_take_whole_neighbouring_segments_within_their_budgets(
    segments: tuple[Segment, ...], policy: Policy
) -> None:
    for plan, force in all_plans(segments, policy):
        check(plan, segments, policy, force)


@settings(max_examples=40)
@given(st.lists(partitions(), max_size=4), policies)
def test_c12_the_filthiest_partition_comes_first(found: list[tuple[Segment, ...]], policy: Policy) -> None:
    moved = [
        replace(one, topic_partition=TopicPartition("orders", number), path=f"{number}-{one.path}")
        for number, segments in enumerate(found)
        for one in segments
    ]
    states = sense(Segments.of(TABLE, "uuid", 7, moved), Policies(policy, {}), NOW)
    assert [state.topic_partition.partition for state in states] == sorted(
        {one.topic_partition.partition for one in moved}, key=lambda number: (-ratio(moved, number, policy), number)
    )


def ratio(segments: list[Segment], number: int, policy: Policy) -> float:
    """C12 from the words of the contract: cleanable head bytes / (tail bytes + cleanable head bytes)."""
    own = sorted((one for one in segments if one.topic_partition.partition == number), key=lambda one: one.order)
    head = [one for one in own if one.level != TAIL and one.records]
    active = [one for one in head if one.level == LANDED][-policy.active_segments or len(head) :]
    lag = policy.min_compaction_lag_ms
    held = [one for one in head if one in active or (lag and NOW - one.newest_ms < lag)]
    clean = sum(one.bytes for one in head if not held or one.order < held[0].order)
    total = clean + sum(one.bytes for one in own if one.level == TAIL)
    return clean / total if total else 0.0


@settings(max_examples=60)
@given(partitions(), policies, st.randoms())
def test_the_same_metadata_policy_and_clock_give_the_same_plan(
    segments: tuple[Segment, ...], policy: Policy, random: Random
) -> None:
    shuffled = list(segments)
    random.shuffle(shuffled)
    (again,) = Segments.of(TABLE, "uuid", 7, shuffled).by_partition.values() if segments else ((),)
    assert all_plans(again, policy) == all_plans(segments, policy)


def check(plan: Plan, segments: tuple[Segment, ...], policy: Policy, force: bool) -> None:
    """Everything that holds for any plan, whatever it was made from."""
    lane = plan.lane
    by_path = {one.path: one for one in segments}
    state = PartitionState(TOPIC_PARTITION, segments, policy, NOW)
    taken = [by_path[one.path] for one in plan.inputs]
    head = [one for one in taken if one.level != TAIL]
    # Whole segments, each once, in offset order.
    assert [Input.of(one) for one in taken] == [one.model_copy(update={"may_stay": False}) for one in plan.inputs]
    assert lane is Lane.FULL or not any(one.may_stay for one in plan.inputs), "only a full clean leaves a tail in place"
    assert len(set(taken)) == len(taken)
    assert taken == sorted(taken, key=lambda one: one.order)
    # Budgets count what a plan takes of the head; a segment too large is never taken (C18).
    assert sum(one.bytes for one in head) <= policy.plan_max_bytes
    assert sum(one.records for one in head) <= policy.plan_max_records
    assert all(one.bytes <= policy.max_input_bytes for one in taken)
    if head and lane is not Lane.RETAIN:
        # A run's budget counts the tail as well.
        assert plan.bytes <= policy.run_max_bytes
        assert plan.records <= policy.run_max_records
    if lane is not Lane.MERGE:
        keys = sum(one.records if one.keys is None else one.keys for one in head)
        assert keys <= min(policy.keys_per_plan, policy.run_max_keys)
    # Neighbours: nothing of the head with a record lies between two inputs of the head.
    with_records = [one for one in state.segments if one.records and (one.level != TAIL or lane is not Lane.FULL)]
    if head:
        first, last = with_records.index(head[0]), with_records.index(head[-1])
        assert with_records[first : last + 1] == head
    if lane in LEVEL_IN:
        assert {one.level for one in taken} == {LEVEL_IN[lane]}
    if lane is Lane.MERGE:
        assert len(taken) >= 2
        assert not {one.path for one in taken} & state.active
        assert force or len(taken) % policy.merge_segments == 0, "C13: whole groups"
        assert plan.inputs_per_segment == policy.merge_segments
    else:
        assert plan.inputs_per_segment is None
        assert set(head) <= set(state.cleanable), "C11: nothing at or past the uncleanable part"
        if policy.min_compaction_lag_ms:
            assert all(NOW - one.newest_ms >= policy.min_compaction_lag_ms for one in head), "C11: nothing young"
        assert not {one.path for one in head} & state.active, "C11: nothing active"
    if lane is Lane.TIER:
        check_tier(taken, segments, policy, force)
    if lane is Lane.FULL:
        whole = {one.path for one in state.tail if one.bytes <= policy.max_input_bytes}
        assert {one.path for one in taken if one.level == TAIL} == whole, "C16, C18: the tail but for what is too large"
        if head:
            assert head[0] == state.cleanable[0], "oldest first"
    # C7: a tombstone is clean below the lowest offset that anything outside may hold.
    outside = [one.base_offset for one in segments if one.records and one not in taken]
    assert plan.clean_below == (min(outside) if outside else None)
    # C4
    assert plan.log_end_offset == max(one.last_offset for one in segments)


def check_tier(taken: list[Segment], segments: tuple[Segment, ...], policy: Policy, force: bool) -> None:
    """C15: whole runs, similar in size, and enough of them waiting."""
    numbers = {one.sequence_number for one in taken}
    runs = [
        [one for one in segments if one.records and one.level == RUN and one.sequence_number == number]
        for number in numbers
    ]
    assert sorted(one.path for run in runs for one in run) == sorted(one.path for one in taken)
    sizes = [sum(one.bytes for one in run) for run in runs]
    assert len(sizes) >= 2
    assert max(sizes) <= policy.tier_size_ratio * min(sizes)
    waiting = {one.sequence_number for one in segments if one.records and one.level == RUN}
    assert force or len(waiting) >= policy.tier_runs


@settings(max_examples=30)
@given(partitions(), policies)
def test_a_plan_is_its_json(segments: tuple[Segment, ...], policy: Policy) -> None:
    for plan, _ in all_plans(segments, policy):
        assert Plan.parse(plan.model_dump_json(), "here") == plan
        assert Plan.parse(json.dumps(json.loads(plan.model_dump_json()), indent=3), "here") == plan
        assert plan.records == sum(one.records for one in plan.inputs)
        assert plan.bytes == sum(one.bytes for one in plan.inputs)


def example(**changes: Any) -> Plan:
    facts: dict[str, Any] = {
        "table": TABLE,
        "table_uuid": "2f6dbd3c",
        "snapshot_id": 2**62 + 1,
        "lane": Lane.FULL,
        "topic": "orders",
        "partition": 3,
        "now_ms": NOW,
        "reason": "dirty ratio 0.700 > 0.5",
        "inputs": (Input(path="file:/a", level=0, base_offset=1, last_offset=5, records=5, bytes=50),),
        "inputs_per_segment": None,
        "segment_bytes": 1000,
        "clean_below": None,
        "log_end_offset": 9,
        "delete_retention_ms": 0,
    }
    return Plan(**facts | changes).sealed()


CHANGES: dict[str, Any] = {
    "id": "0" * 16,
    "comparison": {"before": 1},
    "table": "lake.other",
    "table_uuid": "x",
    "snapshot_id": 1,
    "lane": "clean",
    "topic": "Orders",
    "partition": 4,
    "now_ms": NOW + 1,
    "reason": "because",
    "removed_tombstones": [{"path": "x", "level": -2, "base_offset": 0, "last_offset": 0, "records": 1, "bytes": 1}],
    "search": {"through": 1, "before": None, "sequence_number": 1},
    "inputs_per_segment": 2,
    "segment_bytes": 1001,
    "clean_below": 3,
    "log_end_offset": 8,
    "kept_from": 7,
    "sequence_number": 6,
    "delete_retention_ms": 1,
    "cleaner_threads": 2,
    "waiting_segments": 1,
    "transactional": True,
    "markers": [[1, 2, True]],
    "position_deletes_max": 3,
}


@pytest.mark.parametrize("field", CHANGES)
def test_c23_a_changed_plan_is_refused(field: str) -> None:
    document = json.loads(example().model_dump_json())
    assert document[field] != CHANGES[field]
    with pytest.raises(RefusedError, match="the digest of its content"):
        Plan.parse(json.dumps(document | {field: CHANGES[field]}), "p.json")


@pytest.mark.parametrize("field", list(Input.model_fields))
def test_c23_a_changed_input_is_refused(field: str) -> None:
    document = json.loads(example().model_dump_json())
    document["inputs"][0][field] = {"path": "file:/b", "may_stay": True, "compared": True}.get(field, 77)
    with pytest.raises(RefusedError, match="the digest of its content"):
        Plan.parse(json.dumps(document), "p.json")


def test_every_field_of_a_plan_is_covered_by_its_id() -> None:
    assert set(CHANGES) == set(Plan.model_fields) - {"version", "inputs"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"inputs": []}, "inputs: Tuple should have at least 1 item"),
        ({"lane": "tiers"}, "lane: Input should be"),
        ({"version": 2}, "version: Input should be 1"),
        ({"extra": 1}, "extra: Extra inputs are not permitted"),
        ({"segment_bytes": 0}, "segment_bytes: Input should be greater"),
        ({"inputs": [{"path": "x"}]}, "inputs.0.level: Field required"),
    ],
)
def test_c26_what_is_no_plan_is_refused_naming_place_and_problem(change: dict[str, Any], problem: str) -> None:
    document = json.loads(example().model_dump_json()) | change
    with pytest.raises(RefusedError, match=r"plan p\.json is not a plan") as caught:
        Plan.parse(json.dumps(document), "p.json")
    assert problem in str(caught.value)


@given(st.text() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps))
def test_any_text_is_a_plan_or_refused(text: str) -> None:
    with pytest.raises(RefusedError, match="is not a plan"):
        Plan.parse(text, "p.json")


@given(st.integers(0), st.binary(max_size=4))
def test_any_damage_is_refused_or_harmless(position: int, patch: bytes) -> None:
    original = example().model_dump_json().encode()
    place = position % (len(original) + 1)
    path = Path("damaged.json")
    path.write_bytes(original[:place] + patch + original[place + len(patch) :])
    try:
        found: Plan | str = Plan.read(path)
    except RefusedError as error:
        found = str(error)
    assert found.startswith("plan damaged.json") if isinstance(found, str) else found == example()


@given(st.integers(0, 10_000))
def test_a_half_written_plan_is_refused(length: int) -> None:
    original = example().model_dump_json().encode()
    path = Path("half.json")
    path.write_bytes(original[: min(length, len(original) - 1)])
    with pytest.raises(RefusedError, match=r"plan half\.json is not a plan"):
        Plan.read(path)


def test_a_plan_is_written_under_its_id_and_read_back(tmp_path: Path) -> None:
    plan = example()
    path = plan.write(tmp_path / "new" / "plans")
    assert path.name == f"{plan.id}.json"
    assert Plan.read(path) == plan
    assert plan.stage == f"lake.records/{plan.id}"


@pytest.mark.parametrize("name", ["none.json", "."])
def test_c26_a_plan_file_that_is_not_there_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RefusedError, match="can't be read"):
        Plan.read(tmp_path / name)


@pytest.mark.parametrize(("lane", "level"), [(Lane.MERGE, 1), (Lane.CLEAN, 2), (Lane.TIER, 2), (Lane.FULL, 3)])
def test_a_lane_makes_one_level(lane: Lane, level: int) -> None:
    assert example(lane=lane).level_out == level


class TestPlanTable:
    """Plans of a real table."""

    def test_planning_changes_nothing(self, lake: Lake, table: str) -> None:
        append(lake, [row(0)])
        before = (lake.table(table).metadata_location, lake.tables("lake"))
        first = plan_table(lake, table, Lane.FULL, NOW)
        assert first == plan_table(lake, table, "full", NOW) == plan_table(lake, table, Lane.FULL, from_ms(NOW))
        assert (lake.table(table).metadata_location, lake.tables("lake")) == before
        (plan,) = first
        assert plan.snapshot_id == lakes.snapshot(lake)
        assert plan.table_uuid == str(lake.table(table).metadata.table_uuid)

    def test_an_empty_table_has_no_plans(self, lake: Lake, table: str) -> None:
        assert plan_table(lake, table, Lane.FULL, NOW, force=True) == []

    def test_one_plan_per_topic_partition_the_filthiest_first(self, lake: Lake, table: str) -> None:
        append(lake, [row(0, level=3), row(0, partition=1, level=3), row(1), row(1, partition=1), row(0, partition=2)])
        append(lake, [row(2, partition=1, value=b"a large one" * 500)])
        plans = plan_table(lake, table, Lane.FULL, NOW, force=True)
        assert [plan.partition for plan in plans] == [2, 1, 0]

    def test_only_asked_for_partitions_are_planned(self, lake: Lake, table: str) -> None:
        append(lake, [row(0), row(0, partition=1)])
        (plan,) = plan_table(lake, table, Lane.FULL, NOW, scope=Scope(partitions=(TopicPartition("orders", 1),)))
        assert plan.partition == 1

    def test_c21_each_topic_has_its_own_policy(self, lake: Lake, table: str) -> None:
        with lake.table(table).transaction() as transaction:
            transaction.set_properties({"firn.topic.a.b.merge.segments": "2"})
        for offset in range(2):
            append(lake, [row(offset), row(offset, topic="a.b")])
        (plan,) = plan_table(lake, table, Lane.MERGE, NOW)
        assert plan.topic == "a.b"

    def test_c26_a_wrong_property_refuses_the_table(self, lake: Lake, table: str) -> None:
        with lake.table(table).transaction() as transaction:
            transaction.set_properties({"firn.merge.segments": "1"})
        with pytest.raises(RefusedError, match=r"lake\.records: property firn\.merge\.segments is '1'"):
            plan_table(lake, table, Lane.MERGE, NOW)

    def test_lanes_that_are_planned_together_are_as_planned_alone(self, lake: Lake, table: str) -> None:
        lake.set_properties(
            table, {"firn.merge.segments": "2", "firn.cleanup.policy": "compact,delete", "firn.retention.ms": "30000"}
        )
        for offset in range(5):
            append(lake, [row(offset), row(offset, partition=1)])
        together = plan_lanes(lake, table, NOW)
        assert list(together) == list(Lane)
        assert {lane for lane, work in together.items() if work.plans} == {Lane.RETAIN, Lane.MERGE, Lane.FULL}
        for lane, work in together.items():
            assert work.plans == plan_work(lake, table, lane, NOW).plans

    @pytest.mark.usefixtures("table")
    def test_c26_an_unknown_table_is_refused_with_its_neighbours(self, lake: Lake) -> None:
        with pytest.raises(RefusedError, match=r"lake\.other does not exist in catalog lake; found: lake\.records"):
            plan_table(lake, "lake.other", Lane.MERGE, NOW)
