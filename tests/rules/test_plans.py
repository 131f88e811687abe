"""A plan is a document that nobody changes unseen (C23), and what is none is refused (C26)."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from firnlake.errors import RefusedError
from firnlake.job.plan import Plan
from firnlake.table.policy import Policy
from firnlake.table.published_plans import RecordCounts
from firnlake.table.segment import Segment
from tests.support.drawn import all_plans, example, partitions, policies


@settings(max_examples=30)
@given(partitions(), policies)
def test_a_plan_is_its_json(segments: tuple[Segment, ...], policy: Policy) -> None:
    for plan, _ in all_plans(segments, policy):
        assert Plan.parse(plan.model_dump_json(), "here") == plan
        assert Plan.parse(json.dumps(json.loads(plan.model_dump_json()), indent=3), "here") == plan
        assert plan.records == sum(one.records for one in plan.inputs)
        assert plan.bytes == sum(one.bytes for one in plan.inputs)


def changed(value: Any) -> Any:
    """Another value of the same kind; one where there is none."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return value + "x"
        case list():
            return [*value, *value]
    return 77


def test_c23_a_changed_plan_is_refused_whatever_field_is_changed() -> None:
    filled = {"markers": ((1, 2, True),), "requests": ("0" * 32,), "removed_tombstones": example().inputs}
    document = json.loads(example(**filled).model_dump_json())
    (taken,) = document["inputs"]
    changes = [{name: changed(value)} for name, value in document.items() if name not in ("version", "lane")]
    changes += [{"inputs": [taken | {name: changed(value)}]} for name, value in taken.items()]
    for change in [*changes, {"lane": "clean"}]:
        with pytest.raises(RefusedError, match="the digest of its content"):
            Plan.parse(json.dumps(document | change), "p.json")


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


def test_c26_a_plan_is_written_under_its_id_and_a_file_that_is_torn_or_not_there_is_refused(tmp_path: Path) -> None:
    plan = example()
    path = plan.write(tmp_path / "new" / "plans")
    assert (path.name, Plan.read(path), plan.stage) == (f"{plan.id}.json", plan, f"lake.records/{plan.id}")
    whole = path.read_bytes()
    for length in range(0, len(whole) - 1, 7):
        path.write_bytes(whole[:length])
        with pytest.raises(RefusedError, match=r"plan .*\.json is not a plan"):
            Plan.read(path)
    for missing in (tmp_path / "none.json", tmp_path):
        with pytest.raises(RefusedError, match="can't be read"):
            Plan.read(missing)


COUNTS = RecordCounts(
    records_in=10, records_out=4, superseded=3, tombstones_removed=1, expired=1, quarantined=1,
    bytes_in=100, bytes_out=50, segments_in=3, segments_out=1,
)  # fmt: skip


def test_c24_counts_add_up_or_are_refused_and_come_back_from_a_summary() -> None:
    assert COUNTS.check("stage x") is COUNTS
    for name in ("records_in", "records_out", "superseded", "tombstones_removed", "expired", "quarantined"):
        wrong = COUNTS.model_copy(update={name: getattr(COUNTS, name) + 1})
        with pytest.raises(
            RefusedError, match=r"stage x: records in = 1[01], but .* = 1[01]; allowed: records in = out [+]"
        ):
            wrong.check("stage x")
    figures = COUNTS.model_dump()
    assert COUNTS.summary() == {f"firn.{name.replace('_', '-')}": str(figure) for name, figure in figures.items()}
    assert RecordCounts.of_summary(COUNTS.summary()) == COUNTS
    assert RecordCounts.total([COUNTS, COUNTS]).model_dump() == {name: 2 * one for name, one in figures.items()}
