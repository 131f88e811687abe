"""Whatever others made of Firn's documents (plans, properties, summaries, status files) is read or refused (C26)."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.table import Table

from pipeline.airflow.site.page import table_html
from pipeline.cli.options import pairs
from pipeline.clock import parse
from pipeline.errors import FirnError, RefusedError
from pipeline.explain import explain_partition, parse_key
from pipeline.explain.history import History
from pipeline.history.properties import (
    JOB_ID,
    LANE,
    NOW_MS,
    PLAN_ID,
    PLANS_DOCUMENT,
    REASON,
    TOPIC_PARTITION,
    WAITING_TOPIC_PARTITIONS,
)
from pipeline.lake import Lake
from pipeline.lake.folders import DATA_PATH
from pipeline.lake.topic_partition import TopicPartition
from pipeline.overview import Overview, Query, path_of, read
from pipeline.overview.results import last_verdicts
from pipeline.plan import Plan
from pipeline.plan.failure import FAILURE_PROPERTY, PLAN_PROPERTY, failed_plans
from pipeline.policy import Policies
from pipeline.policy.policy import NAMES
from pipeline.publish import publish
from pipeline.stage import Stage, discard, parts_of, sweep
from pipeline.stage.claim import Claim
from pipeline.stage.stage import BOOKS_PROPERTY, PLANS_PROPERTY, VERDICT_PROPERTY
from pipeline.status import status_of, write_snapshot
from tests.support import lakes
from tests.support.fuzz import HOSTILE_NAMES, JSON, damaged, fuzzed, fuzzed_less, refused_or
from tests.support.lakes import NOW, TABLE, append_two, only_plan, ready, row
from tests.support.overviews import write_overview

TEXTS = st.text(max_size=20) | st.sampled_from(HOSTILE_NAMES) | JSON.map(json.dumps)
NUMBERS = st.sampled_from(
    ["0", "-1", "1", "nan", "inf", "-inf", "1e400", "9" * 400, "9" * 5000, "१२", "1_0", " 1", "0x1"]
)


RECORDS = "firn.records-in"


@pytest.fixture
def plan(lake: Lake, table: str) -> Plan:
    append_two(lake, row(0), row(1))
    return only_plan(lake)


class TestPlans:
    """Plan files."""

    @given(data=st.data())
    @fuzzed
    def test_c26_a_damaged_plan_is_refused(self, plan: Plan, tmp_path: Path, data: st.DataObject) -> None:
        path = plan.write(tmp_path / "plans")
        whole = path.read_bytes()
        path.write_bytes(data.draw(damaged(st.just(whole))))
        found = refused_or(lambda: Plan.read(path))
        assert isinstance(found, FirnError) or found == plan

    @given(data=st.data())
    @fuzzed
    def test_c26_another_value_anywhere_is_refused_or_a_plan(self, plan: Plan, data: st.DataObject) -> None:
        """Also under an id that fits: whoever can write plans can work out their ids."""
        document = plan.model_dump(mode="json")
        place = data.draw(st.sampled_from([document, document["inputs"][0]]))
        place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JSON | st.integers() | NUMBERS)
        text = json.dumps(document)
        found = refused_or(lambda: Plan.parse(text, "of a test"))
        if isinstance(found, FirnError) and "digests to" in str(found):
            document["id"] = str(found).rpartition("allowed: ")[2].partition(",")[0]
            found = refused_or(lambda: Plan.parse(json.dumps(document), "of a test"))
        if isinstance(found, Plan):
            assert found.title.isprintable()
            assert Plan.parse(found.model_dump_json(), "again") == found

    @given(st.binary(max_size=60) | JSON.map(json.dumps).map(str.encode))
    @fuzzed
    @example(b"[" * 100_000)
    @example(b'{"id":' * 10_000)
    def test_c26_any_bytes(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "plan.json"
        path.write_bytes(content)
        assert isinstance(refused_or(lambda: Plan.read(path)), RefusedError)


@given(
    st.dictionaries(
        st.sampled_from([f"firn.{name}" for name in NAMES] + [f"firn.topic.a.b.{name}" for name in NAMES])
        | TEXTS.map(lambda text: f"firn.{text}"),
        TEXTS | NUMBERS | st.sampled_from(["warpstream", "kafka", "compact,delete", "none", "full"]),
        max_size=5,
    )
)
@fuzzed
@example({"firn.profile": "warpstream", "firn.cleaner.threads": "0"})
@example({"firn.profile": "warpstream", "firn.cleaner.threads": "9" * 5000})
@example({"firn.profile": "warpstream", "firn.cleaner.threads": "٣"})
@example({"firn.cleaner.dedupe.buffer.size": "9" * 400})
@example({"firn.x\ny": "1"})
def test_c21_any_properties_are_policies_or_refused(properties: dict[str, str]) -> None:
    found = refused_or(lambda: Policies.parse(TABLE, properties))
    if isinstance(found, Policies):
        assert found.default.keys_per_plan >= 1
        assert all(isinstance(getattr(found.default, name), int | float | str) for name in NAMES.values())


class TestStages:
    """What another writer made of a stage: it is refused, and nothing outside of it is touched."""

    @given(
        name=st.sampled_from([PLAN_PROPERTY, BOOKS_PROPERTY, VERDICT_PROPERTY, FAILURE_PROPERTY, f"{Claim.PUBLISH}.x"]),
        content=TEXTS | NUMBERS,
        nested=st.booleans(),
    )
    @fuzzed_less
    def test_c26_a_damaged_property_is_read_or_refused(
        self, staged: Stage, lake: Lake, name: str, content: str, nested: bool
    ) -> None:
        if nested and name in (BOOKS_PROPERTY, VERDICT_PROPERTY):
            inner = (
                refused_or(lambda: json.loads(content)) if content[:1] in '{["0123456789nt' and _is_json(content) else 1
            )
            content = json.dumps({"result": staged.result, "content": {staged.plan.id: inner}})
        before = staged.table.properties.get(name)
        lake.set_properties(staged.identifier, {name: content})
        try:
            looked = refused_or(lambda: looked_at(lake, staged.identifier))
            assert looked is None or isinstance(looked, RefusedError)
            assert isinstance(failed_plans(lake, TABLE), list)
            assert parts_of(lake, staged.identifier) == [staged.identifier]
            assert [one.table for one in status_of(lake, TABLE, NOW)] == [TABLE]
        finally:
            with lake.table(staged.identifier).transaction() as transaction:
                if before is None:
                    transaction.remove_properties(name)
                else:
                    transaction.set_properties({name: before})

    @pytest.mark.parametrize(
        "folder", ["", "/", "{data}", "{data}/_firn", "{data}/_firn/../_firn/{id}/..", "{location}"]
    )
    def test_c25_a_stage_that_names_the_tables_folder_deletes_nothing(
        self, staged: Stage, lake: Lake, folder: str
    ) -> None:
        location = lake.table(TABLE).location()
        said = folder.format(data=f"{location}/data", location=location, id=staged.plan.id)
        lake.set_properties(staged.identifier, {DATA_PATH: said})
        stray = lakes.on_disk(location) / "data" / "being-written.parquet"
        stray.write_bytes(b"of an appender that has not committed yet")
        before = lakes.files_under(lakes.on_disk(location) / "data")
        assert isinstance(refused_or(lambda: discard(lake, staged.identifier)), RefusedError)
        assert staged.identifier in sweep(lake, TABLE, [staged.plan.id]).kept
        assert lakes.files_under(lakes.on_disk(location) / "data") == before

    def test_c25_nor_does_one_whose_plans_are_lost(self, staged: Stage, lake: Lake) -> None:
        location = lake.table(TABLE).location()
        gone = json.dumps({"location": f"{location}/stages/gone.json", "sha256": "0"})
        with lake.table(staged.identifier).transaction() as transaction:
            transaction.remove_properties(PLAN_PROPERTY)
            transaction.set_properties({PLANS_PROPERTY: gone, DATA_PATH: f"{location}/data"})
        stray = lakes.on_disk(location) / "data" / "being-written.parquet"
        stray.write_bytes(b"of an appender that has not committed yet")
        assert staged.identifier in sweep(lake, TABLE).kept
        assert stray.exists()

    @pytest.fixture
    def staged(self, lake: Lake, plan: Plan) -> Stage:
        return ready(lake, plan, [row(1)], lakes.Fates(superseded=1))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def looked_at(lake: Lake, identifier: str) -> None:
    """Read all that a stage says."""
    stage = Stage.load(lake, identifier)
    assert stage.state
    assert stage.title
    assert str(stage.failure)
    assert stage.passed(stage.plan.id) in (True, False)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                *(NOW_MS, WAITING_TOPIC_PARTITIONS, PLAN_ID, JOB_ID, LANE, REASON, TOPIC_PARTITION, PLANS_DOCUMENT),
                "firn.records-in",
            ]
        ),
        TEXTS | NUMBERS | st.just(json.dumps({"location": "file:///etc", "sha256": ""})),
        min_size=1,
    )
)
@fuzzed_less
@example({NOW_MS: "9" * 5000})
@example({NOW_MS: "1", WAITING_TOPIC_PARTITIONS: "{"})
@example({PLAN_ID: "x"})
@example({PLANS_DOCUMENT: json.dumps({"location": "nowhere://x", "sha256": "0"})})
def test_c26_any_snapshot_summary_is_read(lake: Lake, table: str, summary: dict[str, str]) -> None:
    """Summaries are written by everybody who appends."""
    _append(lake.table(table), summary)
    assert [one.table for one in status_of(lake, table, NOW)] == [table]
    assert write_snapshot(lake, table, NOW).table == table
    refused_or(lambda: list(History(lake.table(table)).commits()))
    refused_or(lambda: explain_partition(lake, table, TopicPartition("orders", 0), NOW))


def _append(table: Table, summary: dict[str, str]) -> None:
    table.append(lakes.stored([row(0)]), snapshot_properties=summary)


class TestStatusFiles:
    """The file of a table's status, which a page shows."""

    @given(data=st.data())
    @fuzzed
    def test_c26_a_damaged_file_says_so(self, tmp_path: Path, data: st.DataObject) -> None:
        write_overview(tmp_path)
        path = path_of(tmp_path, "shop.orders")
        path.write_bytes(data.draw(damaged(st.just(path.read_bytes())) | st.binary(max_size=64)))
        found = refused_or(lambda: read(tmp_path, "shop.orders"))
        if isinstance(found, Overview):
            shown = refused_or(lambda: table_html(found, Query(), NOW))
            assert isinstance(shown, FirnError) or shown.endswith("</html>")

    @given(st.binary(max_size=60) | JSON.map(json.dumps).map(str.encode))
    @fuzzed
    def test_a_stored_result_that_is_none_is_left_out(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "results" / "firn-full" / "run" / "now" / "batch.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        assert last_verdicts(tmp_path, TABLE) == ()


@given(TEXTS | NUMBERS)
@fuzzed
@example("²")
@example("0001-01-01T00:00:00+23:59")
@example("9999-12-31T23:59:59-23:59")
@example("sha256:")
def test_c26_any_value_of_an_option_is_understood_or_refused(text: str) -> None:
    parsers: tuple[Any, ...] = (
        parse,
        TopicPartition.parse,
        lambda value: pairs([value]),
        lambda value: parse_key([value]),
        lambda value: parse_key([f"hex:{value}"]),
        lambda value: parse_key([f"base64:{value}"]),
    )
    for parser in parsers:
        refused_or(partial(parser, text))


def test_what_was_damaged_can_still_be_published_when_it_is_mended(lake: Lake, plan: Plan) -> None:
    stage = ready(lake, plan, [row(1)], lakes.Fates(superseded=1))
    said = stage.table.properties[VERDICT_PROPERTY]
    lake.set_properties(
        stage.identifier, {VERDICT_PROPERTY: '{"result": ' + str(stage.result) + ', "content": {"x": 1}}'}
    )
    with pytest.raises(RefusedError, match="property firn-verdict is not readable"):
        publish(lake, stage.identifier)
    lake.set_properties(stage.identifier, {VERDICT_PROPERTY: said})
    publish(lake, stage.identifier)
    assert lakes.offsets(lake) == [1]
