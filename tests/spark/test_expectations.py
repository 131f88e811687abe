"""Every promise of expectations/ against a stage that keeps it and stages that break it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import great_expectations as gx
import pytest
from great_expectations.data_context.types.base import ProgressBarsConfig

from expectations import Claim, Finding, JudgementError, Verdict, build_data_docs, judge
from expectations.custom import EvidenceExpectation, ExpectNoNullKeys, ExpectOneRecordPerKey, ExpectSameRecords
from expectations.suites import PROMISES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key string, value binary>>, level int, delete_horizon timestamp"
)
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
RETENTION = timedelta(hours=1)
PAST, LATER, STAMP = NOW - timedelta(minutes=1), NOW + timedelta(minutes=1), NOW + RETENTION

HEADERS: list[tuple[str, bytes | None]] = [("h", None)]


@dataclass(frozen=True)
class Record:
    offset: int
    key: bytes | None
    value: bytes | None = b"v"
    level: int | None = 1
    delete_horizon: datetime | None = None
    topic: str = "orders"
    partition: int = 3
    timestamp: datetime = NOW - timedelta(days=1)
    timestampType: int = 0  # noqa: N815  # Kafka's name
    headers: list[tuple[str, bytes | None]] | None = field(default_factory=lambda: list(HEADERS))


def stays(record: Record, horizon: datetime | None = None) -> Record:
    return replace(record, level=2, delete_horizon=horizon)


OLD_A, NEW_A = Record(0, b"a", b"1", level=None), Record(2, b"a", b"2")
B = Record(1, b"b")
FIRST_SEEN = Record(3, b"c", None)
OLD_D, DELETED_D = Record(4, b"d"), Record(5, b"d", None)
PAST_HORIZON = Record(6, b"e", None, level=2, delete_horizon=PAST)
BEFORE_HORIZON = Record(7, b"f", None, level=2, delete_horizon=LATER)
EMPTY_KEY = Record(8, b"", b"")
NO_KEY = Record(9, None)
STRANGERS_STAMP = Record(10, b"g", None, level=1, delete_horizon=PAST)
OLD_H, STAMPED_H = Record(11, b"h", level=1), Record(12, b"h", None, level=2, delete_horizon=PAST)
LOG_END = Record(20, b"z", None, level=2, delete_horizon=PAST)

INPUTS = [
    *(OLD_A, NEW_A, B, FIRST_SEEN, OLD_D, DELETED_D, PAST_HORIZON, BEFORE_HORIZON, EMPTY_KEY, NO_KEY),
    *(STRANGERS_STAMP, OLD_H, STAMPED_H, LOG_END),
]
OUTPUTS = [
    stays(B),
    stays(NEW_A),
    stays(FIRST_SEEN, STAMP),
    stays(DELETED_D, STAMP),
    replace(PAST_HORIZON, level=-2),  # removed, and kept beside the topic
    stays(BEFORE_HORIZON, LATER),
    stays(EMPTY_KEY),
    replace(NO_KEY, level=-1),
    stays(STRANGERS_STAMP, STAMP),
    stays(STAMPED_H, STAMP),  # an older record came late: un-stamped, and stamped again
    stays(LOG_END, PAST),
]
CLAIM = Claim(
    table="db.orders",
    lane="clean",
    plan_id="clean/orders-3",
    topic="orders",
    partition=3,
    now_ms=int(NOW.timestamp() * 1000),
    level_out=2,
    clean_below=None,
    log_end_offset=20,
    delete_retention_ms=int(RETENTION.total_seconds() * 1000),
    segments_in=64,
    segments_out=2,
    bytes_in=12_300_000,
    bytes_out=8_100_000,
    records_in=14,
    records_out=9,
    superseded=3,
    tombstones_removed=1,
    quarantined=1,
)
MERGE = replace(CLAIM, lane="merge", level_out=1, records_out=14, superseded=0, tombstones_removed=0, quarantined=0)
ACCOUNTS = "expect_accounting_to_add_up"

Records = list[Record]


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that counts a query as one Spark job; adaptive execution makes one of every shuffle."""
    own = spark.newSession()
    own.conf.set("spark.sql.adaptive.enabled", "false")
    yield own
    spark.range(1).count()  # is the active session again


@pytest.fixture
def judged(spark: SparkSession, tmp_path: Path) -> Callable[[Records, Records, Claim], Verdict]:
    """Judges two lists of records."""
    return lambda inputs, outputs, claim: judge(
        frame(spark, inputs), frame(spark, outputs), claim, tmp_path / "reports", samples="full"
    )


def frame(spark: SparkSession, records: Records) -> DataFrame:
    names = [name.split()[0] for name in SCHEMA.replace("<key string, value binary>", "").split(", ")]
    return spark.createDataFrame([tuple(getattr(r, name) for name in names) for r in records], SCHEMA).coalesce(1)


def without(record: Record) -> Records:
    return [r for r in OUTPUTS if r.offset != record.offset]


def instead(record: Record, **changes: Any) -> Records:
    return [replace(r, **changes) if r.offset == record.offset else r for r in OUTPUTS]


def failed(verdict: Verdict) -> dict[str, Finding]:
    return {finding.name: finding for finding in verdict.failures}


def test_a_correct_cleaning_passes_every_promise(spark: SparkSession, judged: Callable[..., Verdict]) -> None:
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", "the caller's")
    verdict = judged(INPUTS, OUTPUTS, CLAIM)
    assert failed(verdict) == {}
    assert verdict.passed
    assert len(verdict.expectations) == len(PROMISES["clean"]) == 13
    assert 1 <= verdict.spark_jobs <= 2
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") == "the caller's"
    sentences = {finding.name: finding.sentence for finding in verdict.expectations}
    assert sentences["expect_one_record_per_key"] == (
        "Every key of orders-3 has exactly one record in the cleaned run: 9 keys, 9 records."
    )
    assert "14 records read = 9 kept + 3 superseded + 1 tombstone removed + 1 quarantined" in sentences[ACCOUNTS]
    observed = {finding.name: finding.observed for finding in verdict.expectations}
    assert observed["expect_one_record_per_key"] == "9 keys, 9 records."
    assert observed[ACCOUNTS] == "14 = 9 + 3 + 1 + 1."
    assert Verdict.from_dict(json.loads(json.dumps(verdict.to_dict()))) == verdict


def test_full_makes_the_same_promises_at_its_own_level(judged: Callable[..., Verdict]) -> None:
    tail = [replace(r, level=3) if r.level == 2 else r for r in OUTPUTS]
    verdict = judged(INPUTS, tail, replace(CLAIM, lane="full", level_out=3))
    assert verdict.passed
    assert "in the new tail" in verdict.expectations[0].sentence


# what was done to the stage, what it holds then, which promise it breaks, offset and key of the offender
SABOTAGE = {
    "newest record dropped": (without(B), "expect_newest_record_kept", 1, "b"),
    "older record instead of the newest": (
        [*without(NEW_A), stays(OLD_A)],
        "expect_newest_record_kept",
        2,
        "a",
    ),
    "older record kept as well": ([*OUTPUTS, stays(OLD_A)], "expect_one_record_per_key", 2, "a"),
    "key resurrected": ([*without(DELETED_D), stays(OLD_D)], "expect_tombstones_kept", 5, "d"),
    "tombstone gone before its horizon": (without(BEFORE_HORIZON), "expect_tombstones_kept", 7, "f"),
    "tombstone gone at first sight": (without(FIRST_SEEN), "expect_tombstones_kept", 3, "c"),
    "tombstone gone with what it supersedes": (without(STAMPED_H), "expect_tombstones_kept", 12, "h"),
    "tombstone gone by a stranger's stamp": (without(STRANGERS_STAMP), "expect_tombstones_kept", 10, "g"),
    "tombstone kept though removable": (
        instead(PAST_HORIZON, level=2),
        "expect_tombstones_gone",
        6,
        "e",
    ),
    "removed tombstone not kept beside": (without(PAST_HORIZON), "expect_tombstones_gone", 6, "e"),
    "removed tombstone changed": (instead(PAST_HORIZON, timestamp=NOW), "expect_tombstones_gone", 6, "e"),
    "record kept beside that is none": (instead(B, level=-2), "expect_tombstones_gone", 1, "b"),
    "tombstone not stamped": (instead(FIRST_SEEN, delete_horizon=None), "expect_delete_horizons", 3, "c"),
    "horizon moved": (instead(BEFORE_HORIZON, delete_horizon=STAMP), "expect_delete_horizons", 7, "f"),
    "horizon not renewed": (instead(STAMPED_H, delete_horizon=PAST), "expect_delete_horizons", 12, "h"),
    "horizon on a value": (instead(B, delete_horizon=STAMP), "expect_delete_horizons", 1, "b"),
    "value changed": (instead(B, value=b"w"), "expect_records_unchanged", 1, "b"),
    "empty value became NULL": (instead(EMPTY_KEY, value=None), "expect_records_unchanged", 8, ""),
    "timestamp changed": (instead(B, timestamp=NOW), "expect_records_unchanged", 1, "b"),
    "header value NULL became empty": (instead(B, headers=[("h", b"")]), "expect_records_unchanged", 1, "b"),
    "headers lost": (instead(B, headers=None), "expect_records_unchanged", 1, "b"),
    "record invented": ([*OUTPUTS, stays(Record(13, b"new"))], "expect_records_unchanged", 13, "new"),
    "record renumbered": (instead(B, offset=13), "expect_records_unchanged", 1, "b"),
    "null key lost": (without(NO_KEY), "expect_no_null_keys", 9, None),
    "null key changed": (instead(NO_KEY, value=b"w"), "expect_no_null_keys", 9, None),
    "null key left in the topic": (instead(NO_KEY, level=2), "expect_no_null_keys", 9, None),
    "key quarantined": (instead(B, level=-1), "expect_output_level", 1, "b"),
    "wrong level": (instead(B, level=None), "expect_output_level", 1, "b"),
    "record of another partition": (instead(B, partition=4), "expect_one_topic_partition", 1, "b"),
}


def in_world(number: int, records: Records) -> Records:
    """The records in a world of their own: other keys, offsets a hundred further on, and no log end."""
    return [
        replace(r, offset=100 * number + r.offset, key=None if r.key is None else b"%d-" % number + r.key)
        for r in records
        if r.offset != LOG_END.offset
    ]


@pytest.fixture(scope="module")
def sabotaged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finding]:
    """All sabotage at once, each in a world of its own, so that one validation has to find all of it."""
    inputs = [r for number in range(len(SABOTAGE)) for r in in_world(number, INPUTS)]
    outputs = [r for number, case in enumerate(SABOTAGE.values()) for r in in_world(number, case[0])]
    claim = replace(CLAIM, log_end_offset=100 * len(SABOTAGE))
    reports = tmp_path_factory.mktemp("sabotage")
    judge(frame(spark, inputs), frame(spark, outputs), claim, reports, samples="full")
    stored = json.loads(next(reports.rglob("*.json")).read_text(encoding="utf-8"))
    return failed(Verdict.from_dict(stored["meta"]["firn"]["verdict"]))


@pytest.mark.parametrize("name", SABOTAGE)
def test_a_broken_promise_is_named_with_its_offender(name: str, sabotaged: dict[str, Finding]) -> None:
    number = list(SABOTAGE).index(name)
    _, promise, offset, key = SABOTAGE[name]
    finding = sabotaged[promise]
    offender = (100 * number + offset, None if key is None else f"{number}-{key}")
    assert offender in {(sample.offset, sample.key) for sample in finding.samples}
    assert all(sample.found != sample.expected for sample in finding.samples)
    assert "{" not in finding.observed + str(finding.samples)


@pytest.mark.parametrize(
    ("outputs", "promise", "offset", "key"),
    [
        (without(EMPTY_KEY), "expect_newest_record_kept", 8, "(empty)"),
        (without(LOG_END), "expect_log_end_kept", 20, "z"),
    ],
    ids=["empty key dropped", "log end removed"],
)
def test_what_exists_only_once_is_missed(
    outputs: Records, promise: str, offset: int, key: str, judged: Callable[..., Verdict]
) -> None:
    samples = failed(judged(INPUTS, outputs, CLAIM))[promise].samples
    assert [(sample.offset, sample.key) for sample in samples] == [(offset, key)]


@pytest.mark.parametrize(
    ("name", "only"),
    [
        ("value changed", {"expect_records_unchanged"}),
        ("horizon moved", {"expect_delete_horizons"}),
        ("wrong level", {"expect_output_level"}),
    ],
)
def test_a_broken_promise_does_not_accuse_the_others(name: str, only: set[str], judged: Callable[..., Verdict]) -> None:
    assert set(failed(judged(INPUTS, SABOTAGE[name][0], CLAIM))) == only


def test_null_keys_are_not_merged_into_one(judged: Callable[..., Verdict]) -> None:
    inputs = [*INPUTS, Record(13, None, b"x")]
    verdict = judged(inputs, OUTPUTS, replace(CLAIM, records_in=15, superseded=4))
    found = failed(verdict)
    assert [sample.offset for sample in found["expect_no_null_keys"].samples] == [13]
    assert ACCOUNTS in found


def test_a_tombstone_that_is_not_clean_is_neither_removed_nor_stamped(judged: Callable[..., Verdict]) -> None:
    """C7: with a segment outside the inputs that may hold offsets from 4 on, only offset 3 is clean."""
    unstamped = {5: None, 10: None, 12: None}
    outputs = [
        replace(r, delete_horizon=unstamped.get(r.offset, r.delete_horizon)) for r in instead(PAST_HORIZON, level=2)
    ]
    claim = replace(CLAIM, clean_below=4, records_out=10, tombstones_removed=0)
    assert failed(judged(INPUTS, outputs, claim)) == {}
    assert set(failed(judged(INPUTS, OUTPUTS, replace(CLAIM, clean_below=4)))) == {
        "expect_tombstones_kept",
        "expect_tombstones_gone",
        "expect_delete_horizons",
    }


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ({"records_in": 15, "superseded": 4}, "14 records read (15 claimed); 3 records superseded (4 claimed)"),
        ({"records_out": 10, "quarantined": 0}, "9 records kept (10 claimed); 1 records quarantined (0 claimed)"),
        ({"tombstones_removed": 0}, "14 ≠ 9 + 3 + 0 + 1 as claimed"),
    ],
)
def test_a_wrong_claim_is_found_out(lie: dict[str, Any], words: str, judged: Callable[..., Verdict]) -> None:
    verdict = judged(INPUTS, OUTPUTS, replace(CLAIM, **lie))
    assert set(failed(verdict)) == {ACCOUNTS}
    assert words in failed(verdict)[ACCOUNTS].observed


def test_a_log_end_below_what_was_read_is_found_out(judged: Callable[..., Verdict]) -> None:
    assert "expect_log_end_kept" in failed(judged(INPUTS, OUTPUTS, replace(CLAIM, log_end_offset=19)))


def test_an_empty_stage_is_right_when_everything_was_removable(judged: Callable[..., Verdict]) -> None:
    claim = replace(CLAIM, records_in=1, records_out=0, superseded=0, tombstones_removed=1, quarantined=0)
    assert judged([PAST_HORIZON], [replace(PAST_HORIZON, level=-2)], claim).passed


def test_an_empty_stage_is_wrong_when_records_had_to_stay(judged: Callable[..., Verdict]) -> None:
    names = set(failed(judged(INPUTS, [], CLAIM)))
    assert {"expect_newest_record_kept", "expect_tombstones_kept", "expect_log_end_kept", ACCOUNTS} <= names


def test_nothing_read_and_nothing_written_adds_up(judged: Callable[..., Verdict]) -> None:
    claim = replace(CLAIM, records_in=0, records_out=0, superseded=0, tombstones_removed=0, quarantined=0)
    assert judged([], [], claim).passed


@pytest.mark.parametrize("twin", [replace(B, value=b"another"), Record(B.offset, b"another key")])
def test_an_offset_with_two_records_is_named(twin: Record, judged: Callable[..., Verdict]) -> None:
    verdict = judged([*INPUTS, twin], OUTPUTS, replace(CLAIM, records_in=15, superseded=4, repeated=1))
    finding = failed(verdict)["expect_distinct_offsets"]
    assert finding.observed == "1 offset holds different records."
    assert [(s.offset, s.found, s.expected) for s in finding.samples] == [
        (1, "2 records, not all the same", "one record")
    ]


@pytest.mark.parametrize("twin", [B, NO_KEY, STAMPED_H, replace(BEFORE_HORIZON, level=0, delete_horizon=None)])
def test_a_record_written_twice_is_kept_once(twin: Record, judged: Callable[..., Verdict]) -> None:
    verdict = judged([*INPUTS, twin], OUTPUTS, replace(CLAIM, records_in=15, superseded=4, repeated=1))
    assert failed(verdict) == {}
    assert ACCOUNTS in failed(judged([*INPUTS, twin], OUTPUTS, replace(CLAIM, records_in=15, superseded=4)))


LATE = Record(14, b"i", b"deleted", level=0)
RISEN = Record(15, b"i", None, level=-2, delete_horizon=PAST)


def test_c9_a_removed_tombstone_comes_back_over_a_late_record(judged: Callable[..., Verdict]) -> None:
    claim = replace(CLAIM, records_in=16, records_out=10, superseded=4, restored=1)
    inputs = [*INPUTS, LATE, RISEN]
    back = stays(RISEN, STAMP)
    assert failed(judged(inputs, [*OUTPUTS, back], claim)) == {}
    value_is_back = [*OUTPUTS, stays(LATE)]
    assert "expect_tombstones_kept" in failed(judged(inputs, value_is_back, claim))
    assert "expect_delete_horizons" in failed(judged(inputs, [*OUTPUTS, replace(back, delete_horizon=PAST)], claim))


def test_c9_a_removed_tombstone_that_nothing_needs_stays_away(judged: Callable[..., Verdict]) -> None:
    unneeded = [Record(2, b"a", None, level=-2), Record(1, b"y", None, level=-2)]
    assert failed(judged([*INPUTS, *unneeded], OUTPUTS, CLAIM)) == {}
    back = stays(replace(unneeded[1], offset=16), STAMP)
    found = failed(judged([*INPUTS, replace(unneeded[1], offset=16)], [*OUTPUTS, back], CLAIM))
    assert {"expect_records_unchanged", ACCOUNTS} <= set(found)


def test_a_merge_is_a_copy_of_everything_it_read(judged: Callable[..., Verdict]) -> None:
    """C13: duplicates, tombstones, records without a key and horizons included."""
    inputs = [*INPUTS, B]
    claim = replace(MERGE, records_in=15, records_out=15)
    verdict = judged(inputs, [replace(r, level=1) for r in inputs], claim)
    assert failed(verdict) == {}
    assert 1 <= verdict.spark_jobs <= 2
    assert "1 repeated offset among them" in verdict.expectations[0].observed


@pytest.mark.parametrize(
    ("outputs", "promise", "offset"),
    [
        ([r for r in INPUTS if r is not OLD_A], "expect_same_records", 0),
        ([*INPUTS, B], "expect_same_records", 1),
        ([replace(r, value=b"w") if r is B else r for r in INPUTS], "expect_same_records", 1),
        ([replace(r, key=b"k") if r is NO_KEY else r for r in INPUTS], "expect_same_records", 9),
        (
            [replace(r, delete_horizon=None) if r is LOG_END else r for r in INPUTS],
            "expect_same_records",
            20,
        ),
    ],
    ids=["lost", "twice", "value", "key", "horizon"],
)
def test_a_merge_that_is_no_copy_fails(
    outputs: Records, promise: str, offset: int, judged: Callable[..., Verdict]
) -> None:
    verdict = judged(INPUTS, [replace(r, level=1) for r in outputs], MERGE)
    assert offset in {sample.offset for sample in failed(verdict)[promise].samples}


def test_a_merge_that_keeps_old_levels_fails(judged: Callable[..., Verdict]) -> None:
    assert set(failed(judged(INPUTS, INPUTS, MERGE))) == {"expect_output_level"}


def test_what_cannot_be_read_is_an_error_and_no_verdict(spark: SparkSession, tmp_path: Path) -> None:
    lost = tmp_path / "lost"
    frame(spark, INPUTS).write.parquet(str(lost))
    inputs = spark.read.parquet(str(lost))
    for file in lost.glob("*.parquet"):
        file.unlink()
    with pytest.raises(JudgementError, match=r"plan clean/orders-3 could not be validated: .*lost") as raised:
        judge(inputs, frame(spark, OUTPUTS), CLAIM, tmp_path / "reports")
    assert "\n" not in str(raised.value)
    assert list((tmp_path / "reports").rglob("*")) == []


def on_batch(records: DataFrame, expectation: EvidenceExpectation) -> Any:
    """Runs one expectation as any user of Great Expectations would."""
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    asset = context.data_sources.add_spark("mine", persist=False).add_dataframe_asset("any")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": records})
    return batch.validate(expectation)


def test_two_promises_work_on_any_table_of_keyed_records(spark: SparkSession) -> None:
    records = frame(spark, INPUTS)
    repeated = on_batch(records, ExpectOneRecordPerKey(samples="full"))
    assert not repeated.success
    assert repeated.result["observed_value"] == "3 keys have more than one record."
    assert [s["key"] for s in repeated.result["details"]["samples"]] == ["a", "d", "h"]
    without_key = on_batch(records, ExpectNoNullKeys())
    assert without_key.result["observed_value"] == "1 record has no key."
    clean = frame(spark, [B, replace(B, partition=4)])
    assert on_batch(clean, ExpectOneRecordPerKey()).result["observed_value"] == "2 keys, 2 records."
    assert on_batch(clean.select("key"), ExpectOneRecordPerKey()).success is False
    assert on_batch(clean, ExpectNoNullKeys()).success


def test_the_other_promises_say_that_they_need_a_claim(spark: SparkSession) -> None:
    answer = on_batch(frame(spark, [B]), ExpectSameRecords())
    assert not answer.success
    assert "ExpectSameRecords needs a claim" in str(answer.exception_info)


class Markup(HTMLParser):
    """What a browser makes of a page: its tags, where they point, and its content policy."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source, self.policy = source, ""
        self.tags: set[str] = set()
        self.targets: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        values = dict(attrs)
        targets = [values.get(name) or "" for name in ("href", "src", "action", "data")]
        self.targets += [target for target in targets if target and not target.startswith("#")]
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values.get("content") or ""


def hostile_reports(spark: SparkSession, reports: Path) -> tuple[Verdict, Verdict]:
    """One passed and one failed validation whose every name and key is an attack."""
    attack = "<script src=https://evil.example/x>alert(1)</script>$x\"'&"

    def poisoned(records: Records) -> DataFrame:
        return frame(spark, [replace(r, topic=attack, key=r.key and attack.encode() + r.key) for r in records])

    inputs, claim = poisoned(INPUTS), replace(CLAIM, topic=attack, table=attack, plan_id=attack)
    good = [replace(r, key=b"") if r is EMPTY_KEY else r for r in OUTPUTS]
    passed = judge(inputs, poisoned(good), claim, reports, samples="full")
    attacked = replace(claim, plan_id="../../" + attack)
    return passed, judge(inputs, poisoned(without(B)), attacked, reports, samples="full")


def test_the_pages_show_all_results_load_nothing_and_escape_everything(spark: SparkSession, tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    passed, broken = hostile_reports(spark, reports)
    assert passed.passed
    assert not broken.passed
    front = build_data_docs(reports)
    assert front == reports / "index.html"
    pages = sorted(reports.rglob("*.html"))
    assert len(pages) == 5, "a front page, two pages of ours and two of Great Expectations"
    assert all(page.resolve().is_relative_to(reports.resolve()) for page in pages)
    for page in pages:
        markup = Markup(page.read_text(encoding="utf-8"))
        assert "default-src 'none'" in markup.policy
        assert not {"script", "link", "img", "iframe", "object", "embed"} & markup.tags
        assert not re.search(r"@import|url\(", markup.source)
        for target in markup.targets:
            assert (page.parent / target).resolve() in [p.resolve() for p in pages], f"{page}: {target}"
    listed = front.read_text(encoding="utf-8")
    assert listed.index(broken.run_name) < listed.index(passed.run_name), "newest first"
    assert "14 → 9" in listed
    failure = (reports / "plans" / f"{broken.run_name}.html").read_text(encoding="utf-8")
    assert "1 key has lost its newest record." in failure
    assert "offset 1, the newest of its key" in failure
    assert "&lt;script" in failure
    before = {page: page.stat().st_mtime_ns for page in pages if page != front}
    build_data_docs(reports)
    assert before == {page: page.stat().st_mtime_ns for page in before}, "results never change"


def test_keys_stay_out_of_results_and_pages_when_samples_are_off(spark: SparkSession, tmp_path: Path) -> None:
    secret = [replace(r, key=b"secret-key") if r is B else r for r in INPUTS]
    verdict = judge(frame(spark, secret), frame(spark, without(B)), CLAIM, tmp_path, samples="none")
    assert not verdict.passed
    assert all(finding.samples == () or finding.name == ACCOUNTS for finding in verdict.expectations)
    build_data_docs(tmp_path)
    for file in tmp_path.rglob("*.*"):
        assert file.is_dir() or b"secret-key" not in file.read_bytes()


def test_pages_without_any_result_say_so(tmp_path: Path) -> None:
    assert "Nothing has been validated yet" in build_data_docs(tmp_path).read_text(encoding="utf-8")


def test_one_result_is_one_new_file(judged: Callable[..., Verdict], tmp_path: Path) -> None:
    for _ in range(2):
        judged(INPUTS, OUTPUTS, CLAIM)
    files = [path for path in (tmp_path / "reports").rglob("*") if path.is_file()]
    assert len(files) == 2
    claims = [json.loads(file.read_text())["meta"]["firn"]["claim"] for file in files]
    assert [Claim.from_dict(claim) for claim in claims] == [CLAIM, CLAIM]
