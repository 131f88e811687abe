"""A plan is a document that nobody changes unseen (C23)."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnlake.errors import RefusedError
from firnlake.job.plan import Input, Plan
from firnlake.table.policy import Policy
from firnlake.table.segment import Segment
from tests.support.drawn import all_plans, example, partitions, policies
from tests.support.lakes import NOW


@settings(max_examples=30)
@given(partitions(), policies)
def test_a_plan_is_its_json(segments: tuple[Segment, ...], policy: Policy) -> None:
    for plan, _ in all_plans(segments, policy):
        assert Plan.parse(plan.model_dump_json(), "here") == plan
        assert Plan.parse(json.dumps(json.loads(plan.model_dump_json()), indent=3), "here") == plan
        assert plan.records == sum(one.records for one in plan.inputs)
        assert plan.bytes == sum(one.bytes for one in plan.inputs)


CHANGES: dict[str, Any] = {
    "id": "0" * 16,
    "table": "lake.other",
    "table_uuid": "x",
    "snapshot_id": 1,
    "lane": "clean",
    "topic": "Orders",
    "partition": 4,
    "now_ms": NOW + 1,
    "reason": "because",
    "removed_tombstones": [{"path": "x", "level": -2, "base_offset": 0, "last_offset": 0, "records": 1, "bytes": 1}],
    "requests": ["0" * 32],
    "inputs_per_segment": 2,
    "segment_bytes": 1001,
    "clean_below": 3,
    "log_end_offset": 8,
    "kept_from": 7,
    "sequence_number": 6,
    "delete_retention_ms": 1,
    "clock_behind_ms": 1,
    "waiting_segments": 1,
    "transactional": True,
    "unread": True,
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
