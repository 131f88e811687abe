"""C21, C23, C25, C26: whatever others make of plans, staged files, properties and summaries is read or refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from firnlake.errors import FirnError
from infra.foreign.files import files_under, on_disk
from tests.support.examples import HOSTILE_NAMES, JSON, damaged, fuzzed, fuzzed_less, refused_or

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.scenario import Scenario

TEXTS = st.text(max_size=20) | st.sampled_from(HOSTILE_NAMES) | JSON.map(json.dumps)
NUMBERS = st.sampled_from(["0", "-1", "1", "nan", "inf", "1e400", "9" * 400, "9" * 5000, "१२", "1_0", " 1", "0x1"])
PROPERTIES = ("retention.ms", "segment.bytes", "merge.segments", "min.cleanable.dirty.ratio", "cleanup.policy")
SUMMARY = ("now-ms", "job-id", "lane", "reason", "topic-partition", "plans")


@pytest.fixture
def staged(scenario: Scenario) -> list[Path]:
    """The files of a job that is ready to be published: documents, lists and data."""
    assert scenario.answer("land a=1 | a=2") == []
    home = on_disk(scenario.loaded().location())
    before = files_under(home)
    assert scenario.answer("stage full!") == []
    return sorted(files_under(home) - before)


@given(data=st.data())
@fuzzed_less
def test_any_file_of_a_job(scenario: Scenario, staged: list[Path], data: st.DataObject) -> None:
    """It is refused and still there: when the file is whole again, the job is published."""
    path = data.draw(st.sampled_from(staged))
    whole = path.read_bytes()
    spoilt = data.draw(damaged(st.just(whole)) | st.none() | (JSON | st.integers()).map(json.dumps).map(str.encode))
    # A data file is told by its length: who reads it checks its pages.
    assume(spoilt is None or (spoilt != whole and not (path.suffix == ".parquet" and len(spoilt) == len(whole))))
    path.unlink() if spoilt is None else path.write_bytes(spoilt)
    try:
        said = scenario.answer("publish")
        assert [line.partition(": ")[0] for line in said] == ["firn"], said
        assert scenario.answer("read") == ["a=1@0 a=2@1"]
        for line in ("step stages {table}", "maintain --dry-run", "firn plan {table} --lane full", "status"):
            assert not any("Traceback" in one for one in scenario.answer(line))
    finally:
        path.write_bytes(whole)


def test_a_job_without_plans_is_refused(scenario: Scenario, staged: list[Path]) -> None:
    (plans,) = (path for path in staged if path.name == "plans.json")
    plans.write_bytes(b"[]")
    (said,) = scenario.answer("publish")
    assert said.startswith("firn: the plans of stage {table}/<id> are not readable: ")


@pytest.mark.usefixtures("staged")
def test_a_job_whose_files_are_whole_is_published(scenario: Scenario) -> None:
    assert (scenario.answer("publish"), scenario.answer("read")) == ([], ["a=2@1"])


@given(data=st.data())
@fuzzed
def test_any_plan(scenario: Scenario, staged: list[Path], data: st.DataObject) -> None:
    (path,) = (one for one in staged if one.name == "plans.json")
    whole = path.read_bytes()
    document = json.loads(whole)
    place = data.draw(st.sampled_from([document[0], document[0]["inputs"][0]]))
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JSON | st.integers() | NUMBERS)
    changed = [st.just(json.dumps(document).encode()), damaged(st.just(whole)), st.binary(max_size=60)]
    path.write_bytes(data.draw(st.one_of(changed)))
    try:
        said = scenario.answer("step compact {plans}")
    finally:
        path.write_bytes(whole)
    # '0' may be read as 0: a plan with the same digest is the same plan.
    assert said[0].startswith("firn: ") or said[-1].endswith("2 records in, 1 out"), said
    assert len(said) == 1 or said[-1] == "exit code 3", said


@given(
    st.dictionaries(
        st.sampled_from([*PROPERTIES, *(f"topic.a.b.{name}" for name in PROPERTIES)]) | TEXTS,
        TEXTS | NUMBERS | st.sampled_from(["warpstream", "kafka", "compact,delete", "none", "full"]),
        min_size=1,
        max_size=5,
    )
)
@fuzzed_less
@example({"retention.ms": "٣d"})
@example({"segment.bytes": "9" * 5000 + "GB"})
@example({"segment.bytes": "infGB"})
@example({"x\ny": "1"})
def test_c21_any_properties(scenario: Scenario, properties: dict[str, str]) -> None:
    if not scenario.made:
        scenario.answer("land a=1 | a=2")
    named = {f"firn.{name}": value for name, value in properties.items()}
    scenario.opened.lake.set_properties(scenario.name, named)
    refused_or(scenario.table.status)
    refused_or(scenario.table.plan)
    with scenario.loaded().transaction() as change:
        change.remove_properties(*named)


@pytest.mark.nightly
@given(
    st.dictionaries(
        st.sampled_from([*(f"firn.{name}" for name in SUMMARY), "firn.records-in"]),
        TEXTS | NUMBERS | st.just("file:///etc"),
        min_size=1,
    )
)
@fuzzed_less
@example({"firn.now-ms": "9" * 5000})
@example({"firn.job-id": "x"})
def test_any_summary_of_a_snapshot(scenario: Scenario, summary: dict[str, str]) -> None:
    """Summaries are written by everybody who appends."""
    if not scenario.made:
        scenario.answer("land a=1")
    scenario.loaded().append(scenario.foreign_rows(scenario.history.records("b=1")), snapshot_properties=summary)
    assert not isinstance(refused_or(scenario.table.status), FirnError)
    refused_or(lambda: scenario.table.explain("orders-0"))
    refused_or(lambda: scenario.table.explain_key(b"a"))
    refused_or(scenario.table.verify)
