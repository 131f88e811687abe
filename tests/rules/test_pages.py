"""Firn's pages: rows filtered, the worst first; names of strangers are text; no file is served but those of pages."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import to_json

from firnlake.airflow.figures import figures_of, metrics
from firnlake.airflow.pages import overview_html, problem_html, table_html
from firnlake.cli.overview import show_bytes
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.status import PartitionCondition, Status, path_of, read
from firnlake_expectations.case import Finding, Verdict
from firnlake_expectations.data_quality import Seen, Tombstones, table_of
from firnlake_expectations.wording import plain, printable
from tests.support.examples import HOSTILE_NAMES
from tests.support.judged import CLAIM
from tests.support.lakes import NOW, TABLE
from tests.support.pages import (
    HOUR,
    TAKEN,
    Page,
    part_of,
    parts_of,
    publication_of,
    write_overview,
)

SHOP = "shop.orders"
OURS = {"html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "a", "span", "dl", "dt", "dd", "div"}
OURS |= {"table", "tr", "th", "td", "br", "small", "nav", "form", "input", "button", "i", "svg", "rect", "code"}


def opened(home: Path, table: str = SHOP) -> Status:
    """The status of a table that has one."""
    found = read(home, table)
    assert found is not None
    return found


def written(home: Path, **facts: Any) -> Status:
    write_overview(home, **facts)
    return opened(home)


def words(page: str) -> str:
    """What a page says, on one line."""
    return " ".join(Page(page.replace("<", " <")).text.split())


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Status:
    """A table of 10,000 topic partitions."""
    return written(tmp_path_factory.mktemp("home"), parts=parts_of(10_000))


def test_rows_are_found_by_condition_and_text_and_the_worst_come_first(many: Status) -> None:
    condition = PartitionCondition
    conditions = {condition.DUE: 1_000, condition.UNCLEANABLE: 300, condition.WAITING: 500, condition.REFUSED: 100}
    worst = many.found()
    assert len(worst) == 10_000
    assert {shown: len(many.found(shown=shown)) for shown in conditions} == conditions
    assert [len(many.found(text)) for text in (" ORDERS-777 ", "row-level", "nothing")] == [11, 300, 0]
    assert [part.condition for part in worst[:300:299]] == [condition.UNCLEANABLE] * 2
    assert worst[300].condition is condition.REFUSED
    assert worst[400].dirty_ratio == max(part.dirty_ratio for part in many.found(shown=condition.DUE))
    assert "10,000 of 10,000 topic partitions, of which the 100 worst are shown" in words(table_html(many, TAKEN))


def test_a_torn_status_is_none(tmp_path: Path) -> None:
    path = write_overview(tmp_path)
    content = path.read_bytes()
    for share in (0, 0.0001, 0.5, 0.9999):
        path.write_bytes(content[: int(len(content) * share)])
        assert read(tmp_path, SHOP) is None
    assert f"{SHOP}: its status can't be read" in words(overview_html({SHOP: None}, TAKEN))


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_c26_names_are_text_in_pages_sql_paths_and_refusals(tmp_path: Path, name: str) -> None:
    table = name or "nameless"
    parts = [part_of(name, 3, due={name: name}, blockers=(name,), waiting=(name,))]
    done = publication_of(0).model_copy(update={"what": name, "reason": name})
    write_overview(tmp_path, table, parts, publications=(done,), strays=(name,), doubts=(name,))
    found = opened(tmp_path, table)
    assert path_of(tmp_path, name).parent == tmp_path / "status"
    for page in (
        table_html(found, TAKEN, text=name),
        overview_html({table: found, f"{name}2": None}, TAKEN),
        problem_html(name, name),
    ):
        seen = Page(page)
        assert seen.tags <= OURS
        assert printable(name).strip() in seen.text
        assert not [link for link in seen.links if link.startswith(("http", "javascript", "//", "/"))]
        assert all(letter.isprintable() or letter == "\n" for letter in page)
    assert str(RefusedError(f"topic {name} is not there")).isprintable()
    assert set("/\\<>&$\"'\n ") & set(plain(name)) == set()


def test_c26_a_person_who_is_asked_sees_names_as_text(tmp_path: Path) -> None:
    """Airflow shows Markdown: a topic must not be a link, a picture, or another row of the table."""
    header, _, *rows = figures_of(Lake.embedded(tmp_path), HOSTILE_NAMES).splitlines()
    assert len(rows) == len(HOSTILE_NAMES)
    for text in rows:
        bare = text.replace("\\\\", "")
        assert bare.replace("\\|", "").count("|") == header.count("|")
        assert not [at for at, letter in enumerate(bare) if letter in "<[]`*&" and bare[at - 1] != "\\"]


def test_pages_load_nothing_and_tell_figures_with_their_age_and_reasons(tmp_path: Path) -> None:
    found = written(tmp_path)
    page = table_html(found, TAKEN + 2 * HOUR)
    for one in (page, overview_html({SHOP: found}, TAKEN)):
        assert "http:" not in one
        assert "https:" not in one
    assert "As of 2026-11-21 06:00:00 UTC, 2 h ago" in words(page)
    assert "Write amplification 1.53 139.0 GB written / 91.0 GB landed" in words(page)
    assert "uncleanable 9 refused 3" in words(page)
    blocked = table_html(found, TAKEN, shown=PartitionCondition.UNCLEANABLE)
    assert blocked.count("allowed: one of the two (apply the deletes with rewrite_data_files first)") == 9
    nothing: dict[str, Any] = dict.fromkeys(("snapshot_id", "max_lag_ms", "since_ms"))
    found = written(tmp_path, parts=[], **nothing, publications=(), landed_bytes=0)
    assert "No topic partition matches" in table_html(found, TAKEN)
    assert "none yet" in overview_html({SHOP: found}, TAKEN)
    assert "No table whose DAG you may read has a status yet" in overview_html({}, TAKEN)


def test_bytes_are_told_alike_in_the_terminal_on_the_page_and_as_metrics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = written(tmp_path)
    show_bytes(found)
    text = " ".join(capsys.readouterr().out.split())
    assert "history alone holds 38,000,000,000 bytes; expiring snapshots now would free 29,500,000,000 bytes" in text
    sent = metrics(found)
    assert (sent["history-bytes"], sent["expirable-bytes"]) == (38e9, 29.5e9)
    page = words(table_html(found, TAKEN))
    assert "Held by history only 38.0 GB 29.5 GB expirable now" in page


PLACE = f"erasures/{SHOP}/request-{7:032x}"


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """Pages of a plan, of two tables and of a certificate, and much beside them."""
    reports = tmp_path / "reports"
    claim = replace(CLAIM, table=TABLE, lane="full", plan_id="ad97d9098b256fb5", now_ms=NOW)
    findings = (Finding("a", "A promise.", passed=False, observed="2 records are missing."),)
    verdict = Verdict(claim, findings, validated_ms=NOW, run_name="ad97-204f", validation="4711-a1b2")
    for path, content in {
        "verdicts/ad97-204f.json": to_json(verdict).decode(),
        "verdicts/torn.json": "{",
        "results/firn-full/4711-a1b2/20261121T055956.771370Z/firn-lake.records.json": "{}",
        "plans/ad97-204f.html": "Firn's",
        "plans/torn.html": "torn",
        "plans/nobody.html": "without a verdict",
        "tables/lake.records.html": "the table's",
        "tables/a%2Fb.html": "the table's with the odd name",
        "tables/nobody.html": "of a table that nobody has seen",
        f"{PLACE}.json": "{}",
        f"{PLACE}.html": "the certificate's",
        f"erasures/{SHOP}/notes.html": "notes",
        f"../linked/request-{7:032x}.json": "{}",
        "../secret.html": "secret",
    }.items():
        (reports / path).parent.mkdir(parents=True, exist_ok=True)
        (reports / path).write_text(content)
    for table in (TABLE, "a/b"):
        Seen(table, None, NOW, {}, {}, Tombstones(), {}).write(reports)
    (reports / "plans" / "linked.html").symlink_to(tmp_path / "secret.html")
    (reports / "erasures" / "linked").symlink_to(tmp_path / "linked")
    return reports


def test_c30_a_page_is_served_with_the_table_that_it_is_about_and_nothing_else_is(reports: Path) -> None:
    for path, table in (
        ("plans/ad97-204f.html", TABLE),
        (f"tables/{TABLE}.html", TABLE),
        ("tables/a%2Fb.html", "a/b"),
        (f"{PLACE}.html", SHOP),
        (f"{PLACE}.json", SHOP),
    ):
        assert table_of(reports, path) == table
    for path in (
        "", ".", "..", "/", "index.html", "plans", "plans/", "../secret.html", "plans/../../secret.html",
        "plans/linked.html", "plans/nobody.html", "plans/torn.html", "plans/none.html", "plans/*.html",
        "/etc/passwd", "results/firn-full/4711-a1b2/20261121T055956.771370Z/firn-lake.records.json",
        "verdicts/ad97-204f.json", "verdicts/../plans/ad97-204f.html", "plans/%2e%2e/secret.html", "plans/\0.html",
        "tables/nobody.html", "tables/lake.records.json", "plans/" + "x" * 300 + ".html", "plans\\ad97-204f.html",
        "erasures", f"erasures/{SHOP}", f"erasures/{SHOP}/notes.html", f"erasures/{SHOP}/request-7.html", PLACE,
        f"{PLACE}.txt", f"/{PLACE}.html", f"erasures/./{SHOP}/../{PLACE}.html", f"erasures/linked/{PLACE[-40:]}.json",
        f"erasures/*/{PLACE[-40:]}.html", f"erasures/{'x' * 300}/a.html",
        PLACE.replace("/", "\\") + ".html", f"erasures/../erasures/{SHOP}/{PLACE[-40:]}.html",
    ):  # fmt: skip
        assert table_of(reports, path) is None, path
