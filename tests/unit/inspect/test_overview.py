"""The status of tables as pages get it: written whole, read fast, filtered, sorted, paged; and the pages themselves."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from firnlake.airflow.site.page import overview_html, problem_html, reports_html, table_html
from firnlake.errors import RefusedError
from firnlake.iceberg.branches import QUARANTINED
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.status.gather import write_snapshot
from firnlake.inspect.status.rows import Query, Shown, Sort, Status, path_of, read, tables
from firnlake.inspect.status.verdicts import report
from firnlake.job.failures import mark
from firnlake_expectations.claim import Finding, Verdict
from firnlake_expectations.table_report import Seen, Tombstones
from tests.support.judged import CLAIM, verdict_document
from tests.support.lakes import NOW, TABLE, Fates, append, only_plan, ready, row, snapshot
from tests.support.overviews import HOUR, MINUTE, TAKEN, publication_of, row_of, rows_of, verdict_of, write_overview
from tests.support.publishing import publish

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7 * 7 }}"


def opened(home: Path, table: str = "shop.orders") -> Status:
    """The status of a table that has one."""
    found = read(home, table)
    assert found is not None
    return found


def names(found: Status, query: Query) -> list[str]:
    return [row["name"] for row in found.page(query).rows]


class Elements(HTMLParser):
    """Every element of a page with its attributes, and what it says."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += f" {data}"


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Status:
    """A table of 10,000 topic partitions."""
    home = tmp_path_factory.mktemp("home")
    write_overview(home, rows=rows_of(10_000))
    return opened(home)


class TestRows:
    """Topic partitions: filtered, sorted, cut into pages."""

    def test_all_pages_together_hold_every_row_once_in_order(self, many: Status) -> None:
        first = many.page(Query())
        assert (first.found, first.total, first.pages, len(first.rows)) == (10_000, 10_000, 400, 25)
        shown = [row for number in range(1, 401) for row in many.page(Query(page=number)).rows]
        assert len({row["name"] for row in shown}) == 10_000
        ratios = [row["dirty_ratio"] for row in shown]
        assert ratios == sorted(ratios, reverse=True)

    def test_a_page_past_the_end_is_the_last_one(self, many: Status) -> None:
        assert many.page(Query(page=10**12)).number == 400
        nothing = many.page(Query(text="no such topic", page=7))
        assert (nothing.rows, nothing.number, nothing.pages, nothing.found) == ([], 1, 1, 0)

    def test_names_are_sorted_by_number(self, many: Status) -> None:
        assert names(many, Query(sort=Sort.NAME, descending=False))[:11][-2:] == ["orders-9", "orders-10"]
        assert names(many, Query(sort=Sort.NAME))[0] == "orders-9999"

    @pytest.mark.parametrize("descending", [True, False])
    def test_what_has_no_value_comes_last(self, many: Status, descending: bool) -> None:
        query = Query(sort=Sort.LAG, descending=descending)
        last = many.page(Query(sort=Sort.LAG, descending=descending, page=400)).rows[-1]
        assert (many.page(query).rows[0]["lag_ms"], last["lag_ms"]) == (99 * MINUTE if descending else MINUTE, None)

    @pytest.mark.parametrize(
        ("shown", "count"), [("all", 10_000), ("due", 1_000), ("uncleanable", 300), ("waiting", 500), ("refused", 100)]
    )
    def test_by_condition(self, many: Status, shown: str, count: int) -> None:
        assert many.page(Query(shown=Shown(shown))).found == count

    def test_by_text_in_names_and_reasons(self, many: Status) -> None:
        assert set(names(many, Query(text=" ORDERS-777 "))) == {"orders-777", *(f"orders-777{n}" for n in range(10))}
        assert many.page(Query(text="row-level")).found == 300
        assert many.page(Query(text="min.compaction.lag", shown=Shown.DUE)).found == 0

    @pytest.mark.parametrize("sort", list(Sort))
    def test_every_column_sorts(self, many: Status, sort: Sort) -> None:
        assert len(many.page(Query(sort=sort)).rows) == 25

    def test_a_page_of_ten_thousand(self, many: Status, record_property: Callable[[str, object], None]) -> None:
        started = time.perf_counter()
        text = table_html(opened(many.path.parents[1]), Query(text="orders", sort=Sort.NAME, page=9), TAKEN)
        record_property("ms to read, filter, sort and render", round((time.perf_counter() - started) * 1000, 1))
        assert text.count("<tr") > 1


class TestFile:
    """One file per table; whole, or a clear word."""

    def test_what_is_written_is_read(self, tmp_path: Path) -> None:
        write_overview(tmp_path, saved_bytes=-5)
        found = opened(tmp_path)
        assert (found.summary.saved_bytes, found.summary.topic_partitions) == (-5, 300)
        assert found.details().verdicts[3] == verdict_of(3)
        assert tables(tmp_path) == ["shop.orders"]
        assert [path.name for path in (tmp_path / "status").iterdir()] == ["shop.orders.arrow"]

    def test_no_file_is_no_status(self, tmp_path: Path) -> None:
        assert read(tmp_path, "shop.orders") is None
        assert tables(tmp_path) == []

    @pytest.mark.parametrize("left", [0, 0.0001, 0.5, 0.9999])
    def test_c26_a_torn_file_is_named(self, tmp_path: Path, left: float) -> None:
        path = write_overview(tmp_path)
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * left)])
        with pytest.raises(RefusedError, match=r"status of table shop.orders can't be read from .*; allowed"):
            read(tmp_path, "shop.orders")

    def test_c26_the_file_of_another_table_is_refused(self, tmp_path: Path) -> None:
        write_overview(tmp_path).rename(path_of(tmp_path, "shop.customers"))
        with pytest.raises(RefusedError, match=r"it belongs to table shop\.orders"):
            read(tmp_path, "shop.customers")

    @pytest.mark.parametrize("table", ["../../etc/passwd", "a/b", "..", "%2e", "x" * 300, "nul\0", HOSTILE])
    def test_a_name_from_anywhere_stays_in_the_folder(self, tmp_path: Path, table: str) -> None:
        assert path_of(tmp_path, table).parent == tmp_path / "status"
        assert read(tmp_path, table) is None

    def test_c26_a_folder_that_can_not_be_written_to(self, tmp_path: Path) -> None:
        (tmp_path / "status").write_text("a file")
        with pytest.raises(RefusedError, match="can't be written"):
            write_overview(tmp_path)


class TestPages:
    """HTML: everything escaped, nothing loaded, no script."""

    def hostile(self, home: Path) -> Status:
        rows = [row_of(HOSTILE, 0, due=[HOSTILE], in_the_way=[HOSTILE], waiting=[HOSTILE], condition="due")]
        broken = verdict_of(3, topic_partition=HOSTILE, failures=(HOSTILE,), plan=HOSTILE, run_name=HOSTILE)
        done = publication_of(0).model_copy(update={"what": HOSTILE, "reason": HOSTILE})
        facts: dict[str, Any] = {"verdicts": (broken,), "publications": (done,), "last_verdict": broken}
        write_overview(home, HOSTILE, rows, **facts, strays=(HOSTILE,), doubts=(HOSTILE,))
        return opened(home, HOSTILE)

    def test_names_of_strangers_are_text(self, tmp_path: Path) -> None:
        found = self.hostile(tmp_path)
        for page in (
            table_html(found, Query(text=HOSTILE), TAKEN),
            overview_html([found.summary], {HOSTILE: HOSTILE}, TAKEN),
            reports_html("../", None, found.details().verdicts),
            problem_html(HOSTILE, HOSTILE, HOSTILE),
        ):
            elements = Elements(page)
            assert {"script", "img", "iframe", "object", "link"}.isdisjoint(elements.tags)
            assert not [name for name, _ in elements.attributes if name.startswith("on")]
            assert not [value for name, value in elements.attributes if name == "href" and "javascript:" in str(value)]
            assert HOSTILE in elements.text
            assert "49" not in elements.text

    def test_nothing_is_loaded(self, tmp_path: Path) -> None:
        write_overview(tmp_path)
        found = opened(tmp_path)
        for page in (table_html(found, Query(), TAKEN), overview_html([found.summary], {}, TAKEN)):
            assert "http:" not in page
            assert "https:" not in page
            assert not [name for name, _ in Elements(page).attributes if name in ("src", "srcset", "background")]

    def test_figures_and_the_age(self, tmp_path: Path) -> None:
        write_overview(tmp_path)
        text = " ".join(Elements(table_html(opened(tmp_path), Query(), TAKEN + 2 * HOUR)).text.split())
        assert "As of 2026-11-21 06:00:00 UTC, 2 h ago" in text
        assert "Write amplification 1.53 139.0 GB written / 91.0 GB landed" in text
        assert "uncleanable 9 refused 3" in text

    def test_reasons_are_beside_what_they_are_about(self, tmp_path: Path) -> None:
        write_overview(tmp_path)
        text = Elements(table_html(opened(tmp_path), Query(shown=Shown.UNCLEANABLE), TAKEN)).text
        assert text.count("allowed: one of the two (apply the deletes with rewrite_data_files first)") == 9

    def test_a_table_without_anything(self, tmp_path: Path) -> None:
        nothing = ("snapshot_id", "max_lag_ms", "since_ms", "last_verdict", "last_publication")
        facts: dict[str, Any] = dict.fromkeys(nothing) | {"verdicts": (), "publications": (), "landed_bytes": 0}
        write_overview(tmp_path, rows=[], **facts)
        found = opened(tmp_path)
        assert "No topic partition matches" in table_html(found, Query(), TAKEN)
        assert "none yet" in overview_html([found.summary], {}, TAKEN)
        assert "No table whose DAG you may read has a status yet" in overview_html([], {}, TAKEN)
        assert "Nothing has been validated yet" in reports_html("../", None, [])


class TestReports:
    """The files below the reports folder that may be shown as pages, and their owners."""

    @pytest.fixture
    def reports(self, tmp_path: Path) -> Path:
        """The page of one plan, and the verdict that it shows."""
        reports = tmp_path / "reports"
        claim = replace(
            CLAIM, table=TABLE, lane="full", plan_id="ad97d9098b256fb5", partition=2, now_ms=NOW, records_in=24,
            records_out=5,
        )  # fmt: skip
        findings = (Finding("a", "A promise.", passed=False, observed="2 records are missing."),)
        verdict = Verdict(
            claim.plan_id,
            passed=False,
            expectations=findings,
            seconds=0.1,
            run_name="ad97-204f",
            validation="4711-a1b2",
        )
        document = verdict_document(claim, verdict, datetime(2026, 11, 21, 5, 59, 56, 771370, UTC))
        for path, content in {
            "verdicts/ad97-204f.json": json.dumps(document),
            "verdicts/torn.json": "{",
            "results/firn-full/4711-a1b2/20261121T055956.771370Z/firn-lake.records.json": "{}",
            "plans/ad97-204f.html": "Firn's",
            "plans/torn.html": "torn",
            "plans/nobody.html": "without a verdict",
            "tables/lake.records.html": "the table's",
            "tables/a%2Fb.html": "the table's with the odd name",
            "tables/nobody.html": "of a table that nobody has seen",
        }.items():
            (reports / path).parent.mkdir(parents=True, exist_ok=True)
            (reports / path).write_text(content)
        for table in (TABLE, "a/b"):
            Seen(table, None, NOW, {}, {}, Tombstones(), {}).write(reports)
        (tmp_path / "secret.html").write_text("secret")
        (reports / "plans" / "linked.html").symlink_to(tmp_path / "secret.html")
        return reports

    def test_a_page_and_its_table(self, reports: Path) -> None:
        found = report(reports, "plans/ad97-204f.html")
        assert found is not None
        assert (found.file.read_text(), found.table) == ("Firn's", TABLE)

    @pytest.mark.parametrize(("path", "table"), [(f"tables/{TABLE}.html", TABLE), ("tables/a%2Fb.html", "a/b")])
    def test_the_page_of_a_table(self, reports: Path, path: str, table: str) -> None:
        found = report(reports, path)
        assert found is not None
        assert found.table == table
        assert found.file.read_text().startswith("the table's")

    @pytest.mark.parametrize(
        "path",
        [
            "", ".", "..", "/", "index.html", "plans", "plans/", "../secret.html", "plans/../../secret.html",
            "plans/linked.html", "plans/nobody.html", "plans/torn.html", "plans/none.html", "plans/*.html",
            "/etc/passwd", "results/firn-full/4711-a1b2/20261121T055956.771370Z/firn-lake.records.json",
            "verdicts/ad97-204f.json", "verdicts/../plans/ad97-204f.html", "plans/%2e%2e/secret.html", "plans/\0.html",
            "tables/nobody.html", "tables/lake.records.json", "plans/" + "x" * 300 + ".html", "plans\\ad97-204f.html",
        ],
    )  # fmt: skip
    def test_nothing_else(self, reports: Path, path: str) -> None:
        assert report(reports, path) is None

    @pytest.mark.usefixtures("table")
    def test_the_last_verdicts_are_in_the_status(self, lake: Lake, reports: Path) -> None:
        reports.rename(lake.reports_folder)
        write_snapshot(lake, TABLE, NOW)
        (verdict,) = opened(lake.home, TABLE).details().verdicts
        assert (verdict.topic_partition, verdict.failures) == ("orders-2", ("2 records are missing.",))
        assert (verdict.as_of_ms, verdict.page) == (NOW, "plans/ad97-204f.html")


@pytest.mark.usefixtures("table")
class TestSnapshot:
    """The status of a real table."""

    def test_levels_conditions_and_what_landed(self, lake: Lake) -> None:
        append(lake, [row(offset, b"%d" % offset, level=3) for offset in range(10)])
        append(lake, [row(10), row(0, partition=1), row(0, topic="idle", level=3)])
        write_snapshot(lake, TABLE, NOW)
        found = opened(lake.home, TABLE)
        assert (found.summary.taken_ms, found.summary.topic_partitions) == (NOW, 3)
        assert [level.segments for level in found.summary.levels] == [2, 0, 0, 2]
        assert [level.records for level in found.summary.levels] == [2, 0, 0, 11]
        assert found.summary.max_lag_ms == 60_000
        live = sum(task.file.file_size_in_bytes for task in lake.table(TABLE).scan().plan_files())
        assert (found.summary.bytes, found.summary.landed_bytes) == (live, live)
        assert found.summary.write_amplification == 0
        (first,) = found.page(Query(text="orders-1")).rows
        assert (first["condition"], first["dirty_ratio"], first["l0_records"]) == ("due", 1.0, 1)
        assert first["due"][0].startswith("full: dirty ratio 1.000 > ")
        assert found.page(Query(text="idle-0")).rows[0]["condition"] == "idle"

    def test_what_firn_did_and_what_it_moved_away(self, lake: Lake) -> None:
        append(lake, [row(0)])
        append(lake, [row(1), row(2, key=None)])
        landed = sum(task.file.file_size_in_bytes for task in lake.table(TABLE).scan().plan_files())
        plan = only_plan(lake)
        kept = [row(1, level=3), row(2, key=None, level=QUARANTINED)]
        done = publish(lake, ready(lake, plan, kept, Fates(superseded=1, quarantined=1)).identifier)
        write_snapshot(lake, TABLE, NOW)
        found = opened(lake.home, TABLE)
        (publication,) = found.details().publications
        assert (publication.snapshot_id, publication.lane, publication.what) == (done.snapshot_id, "full", "orders-0")
        assert (publication.records_in, publication.records_out, publication.quarantined) == (3, 1, 1)
        assert found.summary.last_publication == publication
        assert (found.summary.landed_bytes, found.summary.written_bytes) == (landed, publication.bytes_out)
        assert found.summary.saved_bytes == publication.bytes_in - publication.bytes_out
        (batch,) = found.details().quarantine
        assert (batch.topic_partition, batch.reason, batch.records) == ("orders-0", "null key", 1)
        assert (found.summary.quarantined_records, found.page(Query()).rows[0]["quarantined"]) == (1, 1)

    def test_what_was_refused_says_so(self, lake: Lake) -> None:
        append(lake, [row(0)])
        plan = only_plan(lake)
        mark(lake, plan, "compact", "a torn file")
        write_snapshot(lake, TABLE, NOW)
        (refused,) = opened(lake.home, TABLE).page(Query(shown=Shown.REFUSED)).rows
        assert "a torn file" in refused["in_the_way"][0]

    def test_what_blocks_is_uncleanable_with_its_reason(self, lake: Lake) -> None:
        append(lake, [row(offset, b"%d" % offset) for offset in range(10)])
        lake.set_properties(TABLE, {"firn.cleaner.dedupe.buffer.size": "120"})
        write_snapshot(lake, TABLE, NOW)
        found = opened(lake.home, TABLE)
        (blocked,) = found.page(Query(shown=Shown.UNCLEANABLE)).rows
        assert "needs 240 bytes for 10 keys" in blocked["in_the_way"][0]
        assert found.summary.uncleanable_partitions == 1

    def test_what_is_too_young_waits(self, lake: Lake) -> None:
        append(lake, [row(0)])
        lake.set_properties(TABLE, {"firn.min.compaction.lag.ms": "86400000"})
        write_snapshot(lake, TABLE, NOW)
        (young,) = opened(lake.home, TABLE).page(Query(shown=Shown.WAITING)).rows
        assert "not cleaned until" in young["waiting"][0]
        assert (young["lag_ms"], young["due_in_ms"]) == (None, 86_400_000 - 60_000)

    def test_a_table_that_nothing_landed_in(self, lake: Lake) -> None:
        write_snapshot(lake, TABLE, NOW)
        found = opened(lake.home, TABLE)
        assert found.summary.snapshot_id == snapshot(lake)
        assert found.summary.since_ms == lake.table(TABLE).metadata.snapshots[0].timestamp_ms
        assert (found.summary.topic_partitions, found.summary.landed_bytes) == (0, 0)

    def test_c26_an_unknown_table_is_refused(self, lake: Lake) -> None:
        with pytest.raises(RefusedError, match="does not exist"):
            write_snapshot(lake, "lake.none", NOW)
        assert tables(lake.home) == []
