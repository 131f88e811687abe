"""Certificates of erasures as Firn's pages in Airflow list and serve them."""

import json
from pathlib import Path
from typing import Any

import pytest

from firnlake.airflow.site.page import certificates_html, table_html
from firnlake.inspect.status.rows import Query, read
from firnlake.inspect.status.verdicts import Certificates, certificate_file, certificates
from tests.support.fuzz import HOSTILE_NAMES
from tests.support.overviews import TAKEN, write_overview
from tests.support.pages import Page

TABLE, DAY_MS = "shop.orders", 86_400_000


def issue(reports: Path, request: int, table: str = TABLE, folder: str | None = None, **others: Any) -> Path:
    """Write the document and the page of a certificate; the path of the document."""
    document = {
        "table": table,
        "request": request,
        "requested": "2026-11-01T00:00:00Z",
        "deadline": "2026-12-01T00:00:00Z",
        "issued": f"2026-11-02T00:00:{request % 60:02d}Z",
        "in_time": True,
        "digests": ["ab" * 32, "cd" * 32],
        "destroyed_files": [{"path": "s3://b/1", "records_erased": 2}, {"path": "s3://b/2", "records_erased": 3}],
        "not_covered": ["the topic itself"],
    } | others
    path = reports / "erasures" / (folder or table) / f"request-{request}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    path.with_suffix(".html").write_text(f"page {request}")
    return path


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    return tmp_path / "reports"


class TestList:
    def test_c30_it_has_the_figures_of_each(self, reports: Path) -> None:
        issue(reports, 7)
        (one,) = certificates(reports, TABLE, 10).rows
        assert (one.request, one.keys, one.files_destroyed, one.records_erased, one.in_time) == (7, 2, 2, 5, True)
        assert (one.deadline_ms - one.requested_ms, one.issued_ms - one.requested_ms) == (30 * DAY_MS, DAY_MS + 7_000)

    def test_the_newest_requests_come_first_and_the_rest_is_counted(self, reports: Path) -> None:
        for request in (1, 9, 10, 2):
            issue(reports, request)
        listed = certificates(reports, TABLE, 3)
        assert ([one.request for one in listed.rows], listed.total) == ([10, 9, 2], 4)

    def test_there_is_none(self, reports: Path) -> None:
        assert certificates(reports, TABLE, 3) == Certificates()

    def test_what_is_torn_or_not_firns_is_left_out(self, reports: Path) -> None:
        issue(reports, 1)
        issue(reports, 2).write_text('{"table": "shop.or')
        issue(reports, 3, table="shop.carts", folder=TABLE)
        (reports / "erasures" / TABLE / "notes.json").write_text("{}")
        assert [one.request for one in certificates(reports, TABLE, 10).rows] == [1]

    def test_one_that_is_issued_again_is_read_again(self, reports: Path) -> None:
        issue(reports, 1)
        assert certificates(reports, TABLE, 1).rows[0].keys == 2
        issue(reports, 1, digests=["ab" * 32])
        assert certificates(reports, TABLE, 1).rows[0].keys == 1


class TestFile:
    @pytest.mark.parametrize(("suffix", "content"), [("html", "page 7"), ("json", '{"table"')])
    def test_the_page_and_the_document_belong_to_their_table(self, reports: Path, suffix: str, content: str) -> None:
        issue(reports, 7)
        certificate = certificate_file(reports, f"erasures/{TABLE}/request-7.{suffix}")
        assert certificate is not None
        assert certificate.table == TABLE
        assert certificate.file.read_text().startswith(content)

    @pytest.mark.parametrize(
        "path",
        [
            "", ".", "/", "erasures", f"erasures/{TABLE}", f"erasures/{TABLE}/", f"erasures/{TABLE}/notes.html",
            f"erasures/{TABLE}/request-8.html", f"erasures/{TABLE}/request-x.html", f"erasures/{TABLE}/request-7",
            f"erasures/{TABLE}/request-7.txt", f"erasures/{TABLE}/../{TABLE}/request-7.html",
            f"erasures/./{TABLE}/../request-7.json", "erasures/../../secret/request-7.json",
            f"/erasures/{TABLE}/request-7.html", "erasures/linked/request-7.json",
            "erasures/*/request-7.html", f"erasures/{TABLE}/\0.html",
            f"erasures/{'x' * 300}/request-7.html", f"erasures/{TABLE}/request-{'7' * 300}.html",
            f"erasures\\{TABLE}\\request-7.html", "erasures/shop.carts/request-9.html", "erasures/..//request-7.json",
        ],
    )  # fmt: skip
    def test_nothing_else_is_served(self, reports: Path, tmp_path: Path, path: str) -> None:
        issue(reports, 7)
        (reports / "erasures" / TABLE / "notes.html").write_text("notes")
        # One that says it is another table's would be shown to who may see only this one.
        issue(reports, 9, table=TABLE, folder="shop.carts")
        issue(tmp_path / "secret", 7, table="linked")
        (reports / "erasures" / "linked").symlink_to(tmp_path / "secret" / "erasures" / "linked")
        assert certificate_file(reports, path) is None


def test_the_page_of_a_table_lists_them(tmp_path: Path, reports: Path) -> None:
    write_overview(tmp_path, TABLE)
    overview = read(tmp_path, TABLE)
    assert overview is not None
    assert "No certificate has been issued." in table_html(overview, Query(), TAKEN)
    issue(reports, 7, in_time=False)
    for page in (
        table_html(overview, Query(), TAKEN, certificates(reports, TABLE, 20)),
        certificates_html(TABLE, certificates(reports, TABLE, 20)),
    ):
        assert "2026-12-01" in page
        assert "late" in page
        links = [link for link in Page(page).links if "erasures/" in link]
        assert [link.lstrip("./") for link in links] == [
            f"reports/erasures/{TABLE}/request-7.html",
            f"reports/erasures/{TABLE}/request-7.json",
        ]


FOLDERS = [name for name in HOSTILE_NAMES if name.strip(".") and not set("/\0") & set(name) and len(name) < 200]


@pytest.mark.parametrize("name", FOLDERS)
def test_names_are_text(reports: Path, name: str) -> None:
    issue(reports, 1, table=name)
    listed = certificates(reports, name, 5)
    assert [one.table for one in listed.rows] == [name]
    page = Page(certificates_html(name, listed))
    assert "script" not in page.tags
    assert not [link for link in page.links if link.startswith(("http", "javascript", "//", "/"))]
