"""Certificates of erasures as Firn's pages in Airflow list and serve them."""

import json
from pathlib import Path
from typing import Any

import pytest

from firnlake.airflow.site.page import certificates_html, table_html
from firnlake.inspect.status.rows import Query, read
from firnlake.inspect.status.verdicts import CertificateRow, Certificates, certificate_file, certificates
from tests.support.fuzz import HOSTILE_NAMES
from tests.support.overviews import TAKEN, write_overview
from tests.support.pages import Page

TABLE, DAY_MS = "shop.orders", 86_400_000
SEVEN = f"{7:032x}"


def issue(reports: Path, request: int, table: str = TABLE, folder: str | None = None, **others: Any) -> Path:
    """Write the document and the page of a certificate; the path of the document."""
    document = {
        "table": table,
        "request": f"{request:032x}",
        "in_time": True,
        "keys": 3,
        "found_nowhere": [1],
        "files": 9,
        "requested": f"2026-11-01T00:00:{request:02d}Z",
        "deadline": f"2026-12-01T00:00:{request:02d}Z",
        "issued": f"2026-11-02T00:00:{request:02d}Z",
    } | others
    path = reports / "erasures" / (folder or table) / f"request-{request:032x}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    path.with_suffix(".html").write_text(f"page {request}")
    return path


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    return tmp_path / "reports"


def test_c30_a_row_has_the_figures_of_its_document_as_it_is_now(reports: Path) -> None:
    assert certificates(reports, TABLE, 3) == Certificates()
    issue(reports, 7)
    (one,) = certificates(reports, TABLE, 10).rows
    asked = one.requested_ms
    assert one == CertificateRow(TABLE, SEVEN, asked, asked + 30 * DAY_MS, asked + DAY_MS, True, 3, 1, 9)  # noqa: FBT003
    issue(reports, 7, keys=20)
    assert certificates(reports, TABLE, 1).rows[0].keys == 20


def test_the_newest_requests_come_first_and_what_is_torn_or_not_firns_is_left_out(reports: Path) -> None:
    for request in (1, 9, 10, 2):
        issue(reports, request)
    issue(reports, 11).write_text('{"table": "shop.or')
    issue(reports, 12, table="shop.carts", folder=TABLE)
    (reports / "erasures" / TABLE / "notes.json").write_text("{}")
    listed = certificates(reports, TABLE, 3)
    assert ([int(one.request, 16) for one in listed.rows], listed.total) == ([10, 9, 2], 4)


PLACE = f"erasures/{TABLE}"


@pytest.mark.parametrize(
    "path",
    [
        "", ".", "/", "erasures", PLACE, f"{PLACE}/", f"{PLACE}/notes.html", f"{PLACE}/request-{8:032x}.html",
        f"{PLACE}/request-7.html", f"{PLACE}/request-{SEVEN}", f"{PLACE}/request-{SEVEN}.txt", f"{PLACE}/\0.html",
        f"{PLACE}/../{TABLE}/request-{SEVEN}.html", f"erasures/./{TABLE}/../request-{SEVEN}.json",
        f"erasures/../../secret/request-{SEVEN}.json", f"/{PLACE}/request-{SEVEN}.html", "erasures/..//request-7.json",
        f"erasures/linked/request-{SEVEN}.json", f"erasures/*/request-{SEVEN}.html",
        f"erasures/{'x' * 300}/request-{SEVEN}.html", f"{PLACE}/request-{'7' * 300}.html",
        f"erasures\\{TABLE}\\request-{SEVEN}.html", f"erasures/shop.carts/request-{9:032x}.html",
    ],
)  # fmt: skip
def test_the_page_and_the_document_are_served_and_nothing_else(reports: Path, tmp_path: Path, path: str) -> None:
    for file in (issue(reports, 7), issue(reports, 7).with_suffix(".html")):
        served = certificate_file(reports, f"{PLACE}/{file.name}")
        assert served is not None
        assert (served.table, served.file.read_bytes()) == (TABLE, file.read_bytes())
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
    listed = certificates(reports, TABLE, 20)
    for page in (table_html(overview, Query(), TAKEN, listed), certificates_html(TABLE, listed)):
        assert "2026-12-01" in page
        assert "late" in page
        links = [link.lstrip("./") for link in Page(page).links if "erasures/" in link]
        assert links == [f"reports/{PLACE}/request-{SEVEN}.{suffix}" for suffix in ("html", "json")]


FOLDERS = [name for name in HOSTILE_NAMES if name.strip(".") and not set("/\0") & set(name) and len(name) < 200]


@pytest.mark.parametrize("name", FOLDERS)
def test_names_are_text(reports: Path, name: str) -> None:
    issue(reports, 1, table=name)
    listed = certificates(reports, name, 5)
    assert [one.table for one in listed.rows] == [name]
    page = Page(certificates_html(name, listed))
    assert "script" not in page.tags
    assert not [link for link in page.links if link.startswith(("http", "javascript", "//", "/"))]
