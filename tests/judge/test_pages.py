"""The pages that people read: they tell what was judged and what was not, load nothing, and escape everything."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

from firnlake_expectations.checkpoint import build_data_docs
from firnlake_expectations.data_quality import (
    CERTIFICATES,
    LISTED,
    POSITIONS,
    RESULTS,
    Seen,
    Tombstones,
    build_pages,
    certificate_page,
    page_of,
    write_page,
)
from tests.support.judged import CLAIM, CLEANING, verdicts_on
from tests.support.pages import Page, text_of

if TYPE_CHECKING:
    from pathlib import Path

    from firnlake_expectations.case import Verdict
    from tests.support.scenario import Scenario

ATTACK = "<script src=https://evil.example/x>alert(1)</script>{{7*7}}$x\"'&"
IN_2100 = 4_102_444_800_000
"""Long after every verdict of these tests."""
SEEN = Seen(CLAIM.table, 4711, IN_2100, {}, {}, Tombstones(), {})


def judged(reports: Path, *lines: str) -> list[Verdict]:
    """Verdicts on plans that differ from a right one."""
    return verdicts_on([CLEANING.but(line).numbered(at) for at, line in enumerate(lines)], reports)


def pages(reports: Path) -> tuple[str, str]:
    """What a reader reads on the front page, and on that of the table."""
    front = build_pages(reports)
    return text_of(front), text_of(reports / page_of(CLAIM.table))


def test_pages_load_nothing_and_escape_everything(tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    claim = replace(CLAIM, topic=ATTACK, table=ATTACK, plan_id="../../" + ATTACK)
    read, written = (
        [one._replace(record=one.record._replace(topic=ATTACK, key=ATTACK.encode() + (one.record.key or b"")))
         for one in held if one.record.key is not None]
        for held in (CLEANING.read, CLEANING.but("-1").written)
    )  # fmt: skip
    (verdict,) = verdicts_on([replace(CLEANING, claim=claim, read=read, written=written)], reports)
    judged(reports, "", "")
    judged(reports, f"table='{'x' * 300}'")
    front = build_pages(reports)
    own = sorted(reports.rglob("*.html"))
    assert len(own) == 1 + 3 + 4, "a front page, a page for each table, and one for each verdict"
    for page in own:
        source = page.read_text(encoding="utf-8")
        assert "default-src 'none'" in source
        assert "@import" not in source
        found = Page(source)
        assert not {"script", "link", "img", "iframe", "object", "embed"} & found.tags
        assert {(page.parent / unquote(link)).resolve() for link in found.links if not link.startswith("#")} <= {*own}
    failure = (reports / "plans" / f"{verdict.run_name}.html").read_text(encoding="utf-8")
    for told in ("1 key without the newest record.", "not there", "&lt;script", "{{7*7}}"):
        assert told in failure
    times = {page: page.stat().st_mtime_ns for page in own if page.parent.name == "plans"}
    assert build_pages(reports) == front
    assert times == {page: page.stat().st_mtime_ns for page in times}, "results never change"


@pytest.mark.parametrize("samples", ["none", "full"])
def test_keys_are_where_reports_may_show_them_but_in_no_result_of_great_expectations(
    tmp_path: Path, samples: str
) -> None:
    plan = CLEANING.but("<secret-key=v@13 in=15")
    (verdict,) = verdicts_on([plan], tmp_path, samples)  # type: ignore[arg-type]
    assert verdict.reason.startswith("expect_newest_record_kept")
    build_pages(tmp_path)
    build_data_docs(tmp_path, tmp_path / "docs")
    files = [path for path in tmp_path.rglob("*.*") if path.is_file() and b"secret-key" in path.read_bytes()]
    assert {path.suffix for path in files} == ({".json", ".html"} if samples == "full" else set())
    assert not [path for path in files if RESULTS in path.parts or "docs" in path.parts]


def test_what_was_judged(tmp_path: Path) -> None:
    """A broken promise that is kept by now stays listed, and counts no more."""
    assert "Nothing has been validated yet" in build_pages(tmp_path).read_text(encoding="utf-8")
    (broken, *_) = judged(tmp_path, "snapshot_id=100 -1", "snapshot_id=100")
    for page in pages(tmp_path):
        assert "broken 1 result in 1 table broke a promise and was not published." in page
        assert "orders-0 · clean" in page
        assert "1 key without the newest record. At offset 1. Promised: The newest record of every key is kept" in page
        assert "Not published: the table is as it was before" in page
    later = f"snapshot_id=101 now_ms={CLAIM.now_ms + 30_000} delete_retention_ms=3570000"
    (kept,) = judged(tmp_path, later)
    parts = dict.fromkeys(("orders-0", "orders-1"), "idle")
    replace(SEEN, topic_partitions=parts, published={kept.validation: 815}).write(tmp_path)
    front, own = pages(tmp_path)
    assert "kept Everything that was judged keeps its promises." in front
    for told in (
        "at snapshot 4711",
        "Looked at 28 records",
        "Judged 2 of 2",
        "Not judged within 7 days 0",
        "08:00:30 kept 1 0 14 3 superseded, 1 tombstone removed, 1 quarantined ",
        "08:00:00 broken 2 1 28 6 superseded, 2 tombstones removed, 2 quarantined ",
        "plan-0 101 815 14 → 9",
        "plan-0 100 not published 14 → 9",
    ):
        assert told in own, own
    assert broken.validation not in own
    assert "2 of 2" in text_of(build_pages(tmp_path, IN_2100)), "a verdict ages"


def test_what_was_not_judged_waits(tmp_path: Path) -> None:
    parts = {"orders-0": "idle", "orders-1": "due", "orders-2": "waiting", "events-0": "idle", "forever-0": "idle"}
    held = {"orders-3": "7 holds <b>different</b> records; to delete `a <b>` one: `DELETE FROM`"}
    seen = replace(
        SEEN, topic_partitions=parts | {"orders-3": "refused"}, held=held, tombstones=Tombstones(12, 8, 5, 2, IN_2100),
    )  # fmt: skip
    seen.write(tmp_path)
    front, own = pages(tmp_path)
    for told in ("never judged", "6 of 6", "≤ 2", "7 holds <b>different</b> records"):
        assert told in front, front
    for told in (
        "waits 1 matter waits for a person.",
        "firn status db.orders",
        "1 topic partition is due, 1 topic partition waits for a time: not all records are judged yet",
        "orders-0 idle never",
        "orders-3 refused never",
        "Tombstones 12 delete horizon set: 8 Tombstones due · overdue ≤ 5 · ≤ 2 First horizon (UTC) 2100",
        "Nothing of this table has been validated yet.",
    ):
        assert told in own, own
    lines = "&lt;b&gt;different&lt;/b&gt; records<br>to delete <code>a &lt;b&gt;</code> one: <code>DELETE FROM</code>"
    assert lines in (tmp_path / page_of(CLAIM.table)).read_text(encoding="utf-8")


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"table": "db.orders", "partition": "x"}', "\0"])
def test_long_lists_are_cut_and_what_is_damaged_is_left_out(tmp_path: Path, damage: str) -> None:
    replace(SEEN, topic_partitions={f"orders-{number}": "due" for number in range(LISTED + 2)}).write(tmp_path)
    own = pages(tmp_path)[1]
    assert (own.count(" due never"), "And 2 more." in own) == (LISTED, True)
    SEEN.write(tmp_path).write_text(damage)
    judged(tmp_path, "")
    assert "Firn has not stored what it sees of the table" in pages(tmp_path)[1]


def test_a_certificate(tmp_path: Path) -> None:
    """C30: its page shows what the document says, as text."""
    document = (
        {"firn": "1", "table": "shop.orders", "table_uuid": "0-0", "request": "0123", "in_time": True, "topic": ATTACK}
        | {"requested": "2026-11-01T00:00:00Z", "deadline": "2026-12-01T00:00:00Z", "issued": "2026-11-02T00:00:00Z"}
        | {"log_ends": {"3": 1234}, "requested_at_sequence_number": 77, "keys": 2, "newer": [], "snapshot": 5}
        | {"found_nowhere": list(range(1000, 1000 + POSITIONS + 50)), "locations": [f"s3://b/{ATTACK}"], "files": 4321}
        | {"not_covered": ["the topic itself"], "read": [{"named_by": ATTACK, "files": 21, "bytes": 5000}]}
        | {"object_versions": "none", "sha256": "01" * 32}
    )
    place = f"{CERTIFICATES}/shop.orders/request-0123.html"
    write_page(tmp_path / place, certificate_page(document, "request-0123.json"))
    source = (tmp_path / place).read_text(encoding="utf-8")
    for told in ("0123", "in time", "1234", "77", "4,321", "5,000", "the topic itself", "0101", "default-src 'none'"):
        assert told in source
    assert f"{999 + POSITIONS}, and 50 more, in the document" in source
    found = Page(source)
    assert "script" not in found.tags
    assert {*found.links} == {"../../index.html", "request-0123.json"}
    assert "late</span>" in certificate_page(document | {"in_time": False}, "request-0123.json")
    assert Page(build_pages(tmp_path).read_text(encoding="utf-8")).links == [place]


def test_c19_c20_a_run_tells_the_page_what_it_has_seen(scenario: Scenario) -> None:
    """A run whose plans were all refused has no row; what waits is told until somebody acts."""
    scenario.answer("create topic.old.cleanup.policy=delete topic.old.retention.bytes=1000")
    for line in ("land a=1 a=2 | b=1 c=1 | old:k=1@9,0s", "files", "tear 1", "full!", "mend 1", "at 1m", "full!"):
        scenario.answer(line)
    scenario.answer("firn report")
    told = text_of(scenario.opened.lake.reports_folder / page_of(scenario.name))
    for row in (
        "08:01:00 kept 1 0 2 1 superseded ",
        "orders-0, offsets 2 to 3, 2 records; on branch firn_mended, until somebody drops the branch; taken by",
        "Nothing waits for a person.",
    ):
        assert row in told, told
