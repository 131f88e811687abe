"""Whatever others made of Firn's documents (plans, properties, summaries, status files) is read or refused (C26)."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.table import Table

from firnlake.airflow.site.page import table_html
from firnlake.cli.keys import parse_key
from firnlake.cli.options import pairs
from firnlake.clock import parse
from firnlake.errors import FirnError, RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import job_folder
from firnlake.inspect.explain.partition import History, explain_partition
from firnlake.inspect.status.gather import status_of, write_snapshot
from firnlake.inspect.status.rows import Query, Status, path_of, read
from firnlake.inspect.status.verdicts import last_verdicts
from firnlake.job.collect import discard, sweep
from firnlake.job.documents import JobDocuments
from firnlake.job.failures import FAILURE, PLANS, failed_plans
from firnlake.job.plan import Plan
from firnlake.job.stage import KINDS, RESULT, VERDICTS, Stage, parts_of
from firnlake.job.stale import found_stages
from firnlake.table.policies import Policies
from firnlake.table.policy import NAMES
from firnlake.table.published_plans import (
    JOB_ID,
    LANE,
    NOW_MS,
    PLAN_ID,
    PLANS_DOCUMENT,
    REASON,
    TOPIC_PARTITION,
    WAITING_TOPIC_PARTITIONS,
)
from firnlake.table.topic_partition import TopicPartition
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.fuzz import HOSTILE_NAMES, JSON, damaged, fuzzed, fuzzed_less, refused_or
from tests.support.lakes import NOW, TABLE, ready, row
from tests.support.overviews import write_overview
from tests.support.publishing import publish

TEXTS = st.text(max_size=20) | st.sampled_from(HOSTILE_NAMES) | JSON.map(json.dumps)
NUMBERS = st.sampled_from(
    ["0", "-1", "1", "nan", "inf", "-inf", "1e400", "9" * 400, "9" * 5000, "१२", "1_0", " 1", "0x1"]
)


RECORDS = "firn.records-in"


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
        if isinstance(found, FirnError) and "the digest of its content" in str(found):
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
@example({"firn.retention.ms": "٣d"})
@example({"firn.retention.ms": "9" * 5000 + "d"})
@example({"firn.segment.bytes": "9" * 5000 + "GB"})
@example({"firn.segment.bytes": "infGB"})
@example({"firn.cleaner.dedupe.buffer.size": "9" * 400})
@example({"firn.x\ny": "1"})
def test_c21_any_properties_are_policies_or_refused(properties: dict[str, str]) -> None:
    found = refused_or(lambda: Policies.parse(TABLE, properties))
    if isinstance(found, Policies):
        assert found.default.keys_per_plan >= 1
        assert all(isinstance(getattr(found.default, name), int | float | str) for name in NAMES.values())


class TestStages:
    """Documents of a job that another writer changed are refused, and nothing outside of the job is touched."""

    @pytest.fixture
    def staged(self, lake: Lake, plan: Plan) -> Stage:
        return ready(lake, plan, [row(1)], lakes.Fates(superseded=1))

    @given(kind=st.sampled_from((*KINDS, "other")), content=TEXTS | NUMBERS)
    @fuzzed_less
    def test_c26_any_document_is_read_or_refused(self, staged: Stage, lake: Lake, kind: str, content: str) -> None:
        self._look_at(staged, lake, kind, content)

    @given(kind=st.sampled_from((PLANS, RESULT, VERDICTS, FAILURE)), data=st.data())
    @fuzzed_less
    def test_c26_another_value_anywhere_is_read_or_refused(
        self, staged: Stage, lake: Lake, kind: str, data: st.DataObject
    ) -> None:
        """In the place of the whole document, as if Firn had written it so."""
        found: Any = json.loads(
            next(iter(staged.documents.texts(kind).values()), '{"step": "x", "reason": "y", "clock_ms": 1}')
        )
        place = found[0] if isinstance(found, list) else found
        if kind == VERDICTS and data.draw(st.booleans()):
            place = place["verdicts"][staged.plans[0].id]
        place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JSON | st.integers() | NUMBERS)
        with without(lake, staged, kind):
            self._look_at(staged, lake, kind, json.dumps(found))

    @given(data=st.data())
    @fuzzed_less
    def test_c25_a_damaged_document_is_not_there(self, staged: Stage, lake: Lake, data: st.DataObject) -> None:
        """A document cut off by a killed process or a full disk has another digest than its name."""
        (path,) = documents_of(staged, data.draw(st.sampled_from((PLANS, RESULT, VERDICTS))))
        whole = path.read_bytes()
        path.write_bytes(data.draw(damaged(st.just(whole)).filter(lambda content: content != whole)))
        try:
            found = refused_or(lambda: publish(lake, staged.identifier))
            assert isinstance(found, RefusedError)
            assert lakes.offsets(lake) == [0, 1]
        finally:
            path.write_bytes(whole)

    @staticmethod
    def _look_at(staged: Stage, lake: Lake, kind: str, content: str) -> None:
        documents = JobDocuments.of(lake.table(TABLE), staged.job_id)
        known = {one.location for one in documents.found}
        documents.write(kind, content)
        try:
            looked = refused_or(lambda: looked_at(lake, staged.identifier))
            assert looked is None or isinstance(looked, RefusedError)
            assert isinstance(refused_or(lambda: failed_plans(lake, TABLE)), list)
            assert isinstance(refused_or(lambda: found_stages(lake, TABLE)), list)
            refused_or(lambda: parts_of(lake, staged.identifier))
            assert status_of(lake, TABLE, NOW).table == TABLE
        finally:
            for one in JobDocuments.of(lake.table(TABLE), staged.job_id).found:
                if one.location not in known:
                    on_disk(one.location).unlink()

    @pytest.mark.parametrize(
        "verdict",
        [{}, {"passed": False}, {"passed": "yes"}, {"passed": False, "expectations": [1]}, {"expectations": 1}],
    )
    def test_c26_a_verdict_that_is_none_publishes_nothing(
        self, staged: Stage, lake: Lake, verdict: dict[str, Any]
    ) -> None:
        with without(lake, staged, VERDICTS):
            staged.record_verdicts({staged.plans[0].id: verdict})
            assert isinstance(refused_or(lambda: publish(lake, staged.identifier)), RefusedError)
            assert lakes.offsets(lake) == [0, 1]

    @pytest.mark.parametrize(
        "where", ["{location}", "{live}", "{metadata}", "{job}/../../stray.parquet", "", "/", "s3://x"]
    )
    def test_c25_a_result_that_names_the_tables_own_files_deletes_none(
        self, staged: Stage, lake: Lake, where: str
    ) -> None:
        """Only what lies in the folders of the job goes, whatever its documents name."""
        table = lake.table(TABLE)
        said = where.format(
            location=table.location(),
            live=staged.plans[0].inputs[0].path,
            metadata=table.metadata_location,
            job=job_folder(table, staged.job_id),
        )
        stray = on_disk(table.location()) / "data" / "stray.parquet"
        stray.write_bytes(b"of an appender that has not committed yet")
        assert staged.result
        document = staged.result.model_dump(mode="json")
        document["manifest"]["location"] = said
        for path in documents_of(staged, RESULT):
            path.unlink()
        JobDocuments.of(table, staged.job_id).write(RESULT, json.dumps(document))
        assert isinstance(refused_or(lambda: publish(lake, staged.identifier)), RefusedError)
        discard(lake, staged.identifier)
        assert stray.exists()
        assert all(on_disk(path).exists() for path in lakes.held(lake.table(TABLE)))
        assert lakes.offsets(lake) == [0, 1]
        assert not on_disk(job_folder(table, staged.job_id)).exists()

    def test_c25_nor_does_one_whose_plans_are_lost(self, staged: Stage, lake: Lake) -> None:
        stray = on_disk(lake.table(TABLE).location()) / "data" / "being-written.parquet"
        stray.write_bytes(b"of an appender that has not committed yet")
        for path in documents_of(staged, PLANS):
            path.unlink()
        assert staged.identifier in sweep(lake, TABLE).discarded
        assert stray.exists()
        assert lakes.offsets(lake) == [0, 1]


@contextmanager
def without(lake: Lake, stage: Stage, kind: str) -> Iterator[None]:
    """The stage without its documents of ``kind``, which are put back."""
    whole = {path: path.read_bytes() for path in documents_of(stage, kind)}
    for path in whole:
        path.unlink()
    try:
        yield
    finally:
        for path in documents_of(stage, kind):
            path.unlink()
        for path, content in whole.items():
            path.write_bytes(content)


def documents_of(stage: Stage, kind: str) -> list[Path]:
    """The documents of ``kind`` that are there now."""
    return sorted(on_disk(stage.documents.location).glob(f"{kind}-*.json"))


def looked_at(lake: Lake, identifier: str) -> None:
    """Read all that a stage says."""
    stage = Stage.load(lake, identifier)
    assert stage.state
    assert stage.title
    assert str(stage.failure)
    for plan in stage.plans:
        assert stage.passed(plan.id) in (True, False)
    assert isinstance(stage.files, dict)


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
    assert status_of(lake, table, NOW).table == table
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
        if isinstance(found, Status):
            shown = refused_or(lambda: table_html(found, Query(), NOW))
            assert isinstance(shown, FirnError) or shown.endswith("</html>")

    @given(st.binary(max_size=60) | JSON.map(json.dumps).map(str.encode))
    @fuzzed
    def test_a_stored_verdict_that_is_none_is_left_out(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "verdicts" / "run.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        assert last_verdicts(tmp_path) == {}


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
        lambda value: parse_key(value, ["key"]),
        lambda value: parse_key(f"hex:{value}", ["key"]),
        lambda value: parse_key(f"base64:{value}", ["key"]),
        lambda value: parse_key(value, ["tenant", "id"]),
    )
    for parser in parsers:
        refused_or(partial(parser, text))


@pytest.mark.parametrize("kind", [PLANS, RESULT, VERDICTS])
def test_c25_what_was_damaged_can_still_be_published_when_it_is_mended(lake: Lake, plan: Plan, kind: str) -> None:
    stage = ready(lake, plan, [row(1)], lakes.Fates(superseded=1))
    (path,) = documents_of(stage, kind)
    said = path.read_bytes()
    path.write_bytes(said[:-1])
    with pytest.raises(RefusedError, match="allowed: "):
        publish(lake, stage.identifier)
    path.write_bytes(said)
    publish(lake, stage.identifier)
    assert lakes.offsets(lake) == [1]
