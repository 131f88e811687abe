"""The page of a certificate shows what the document says, loads nothing, and escapes everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firnlake_expectations.docs import build_pages
from firnlake_expectations.templates import CERTIFICATES, DIGESTS, certificate_page, write_page
from tests.unit.expectations.test_pages import Markup

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = "<script>alert('orders')</script>"


def content(**others: Any) -> dict[str, Any]:
    return {
        "format": "firn-certificate-v1",
        "firn": "1",
        "table": "shop.orders",
        "table_uuid": "0-0",
        "request": 7,
        "requested": "2026-11-01T00:00:00Z",
        "deadline": "2026-12-01T00:00:00Z",
        "issued": "2026-11-02T00:00:00Z",
        "in_time": True,
        "digests": ["ab" * 32],
        "digest_method": "HMAC-SHA256",
        "landed_again": [],
        "topic_partitions": [{"topic": HOSTILE, "partition": 3, "below_offset": 1234}],
        "commits": [99],
        "destroyed_files": [{"path": f"s3://b/{HOSTILE}", "bytes": 5000, "sha256": "cd" * 32, "records_erased": 2}],
        "searched": {"snapshot": 5, "locations": ["s3://b/t"], "files": 3, "bytes": 9, "listing_sha256": "ef" * 32},
        "object_versions": "none, as the operator declares",
        "not_covered": ["the topic itself"],
        "sha256": "01" * 32,
    } | others


def test_it_says_what_the_document_says() -> None:
    page = certificate_page(content(), "request-7.json")
    for text in (
        "Certificate of erasure 7",
        "in time",
        "ab" * 32,
        "cd" * 32,
        "1234",
        "5,000",
        "as the operator declares",
    ):
        assert text in page
    assert "request-7.json" in Markup(page).targets


def test_names_are_escaped_and_nothing_is_loaded() -> None:
    found = Markup(certificate_page(content(), "request-7.json"))
    assert "script" not in found.tags
    assert found.policy.startswith("default-src 'none'")
    assert all(target.endswith((".json", "index.html")) for target in found.targets)


def test_a_late_one_says_so() -> None:
    assert "late</span>" in certificate_page(content(in_time=False), "x.json")


def test_it_lists_some_keys_and_counts_the_others() -> None:
    page = certificate_page(content(digests=[f"{number:064d}" for number in range(DIGESTS + 50)]), "x.json")
    assert "and 50 more, in the document" in page
    assert f"{DIGESTS:064d}" not in page


def test_the_front_page_of_the_reports_lists_it(tmp_path: Path) -> None:
    page = tmp_path / CERTIFICATES / "shop.customers" / "request-7.html"
    write_page(page, certificate_page(content(), "request-7.json"))
    front = Markup(build_pages(tmp_path).read_text(encoding="utf-8"))
    assert front.targets == ["erasures/shop.customers/request-7.html"]
    assert "shop.customers" in front.source
