"""A plan is a document that nobody changes unseen (C23), and its counts add up (C24)."""

import json
from typing import Any

import pytest

from firnlake.errors import RefusedError
from firnlake.job.plan import Plan
from firnlake.table.published_plans import RecordCounts
from tests.support.plans import example


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
