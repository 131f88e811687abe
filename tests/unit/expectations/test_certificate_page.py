"""The page of a certificate shows what the document says, loads nothing, and escapes everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firnlake_expectations.docs import build_pages
from firnlake_expectations.templates import CERTIFICATES, POSITIONS, certificate_page, write_page
from tests.unit.expectations.test_pages import Markup

if TYPE_CHECKING:
    from pathlib import Path

REQUEST = "0123456789abcdef" * 2
HOSTILE = "<script>alert('orders')</script>"
DOCUMENT = (
    {"firn": "1", "table": "shop.orders", "table_uuid": "0-0", "request": REQUEST, "in_time": True, "topic": HOSTILE}
    | {"requested": "2026-11-01T00:00:00Z", "deadline": "2026-12-01T00:00:00Z", "issued": "2026-11-02T00:00:00Z"}
    | {"log_ends": {"3": 1234}, "requested_at_sequence_number": 77, "keys": 2, "found_nowhere": [1], "newer": []}
    | {"snapshot": 5, "locations": [f"s3://b/{HOSTILE}"], "files": 4321, "not_covered": ["the topic itself"]}
    | {"read": [{"named_by": HOSTILE, "files": 21, "bytes": 5000}], "object_versions": "none", "sha256": "01" * 32}
)


def page(**others: Any) -> str:
    return certificate_page(DOCUMENT | others, f"request-{REQUEST}.json")


def test_it_says_what_the_document_says_as_text_and_loads_nothing() -> None:
    found = Markup(page())
    for text in (REQUEST, "in time", "1234", "77", "4,321", "5,000", "the topic itself", "01" * 32):
        assert text in found.source
    assert "script" not in found.tags
    assert found.policy.startswith("default-src 'none'")
    assert set(found.targets) == {"../../index.html", f"request-{REQUEST}.json"}
    assert "late</span>" in page(in_time=False)


def test_it_lists_some_positions_and_counts_the_others() -> None:
    listed = page(found_nowhere=list(range(1000, 1000 + POSITIONS + 50)))
    assert f"{999 + POSITIONS}, and 50 more, in the document" in listed
    assert f"{1000 + POSITIONS}" not in listed


def test_the_front_page_of_the_reports_lists_it(tmp_path: Path) -> None:
    place = f"{CERTIFICATES}/shop.orders/request-{REQUEST}.html"
    write_page(tmp_path / place, page())
    assert Markup(build_pages(tmp_path).read_text(encoding="utf-8")).targets == [place]
