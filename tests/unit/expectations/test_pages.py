"""The pages that people read: they show all results, load nothing, escape everything, and show no more than allowed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import unquote

from firnlake_expectations.claim import Claim
from firnlake_expectations.data_docs import build_data_docs
from firnlake_expectations.docs import build_pages
from firnlake_expectations.promises.promise import EVERY_LANE
from firnlake_expectations.templates import TABLES, VERDICTS
from tests.support.judged import CLAIM, EMPTY_KEY, INPUTS, OUTPUTS, RECORD_COUNTS, B, Records, judge_all, table, without

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from firnlake_expectations.claim import Verdict


class Markup(HTMLParser):
    """A page as a browser sees it: its tags, their targets, and its content policy."""

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


def hostile_reports(reports: Path) -> tuple[Verdict, Verdict]:
    """One passed and one failed validation whose every name and key is an attack."""
    attack = "<script src=https://evil.example/x>alert(1)</script>$x\"'&"

    def poisoned(records: Records) -> pa.Table:
        return table([replace(r, topic=attack, key=r.key and attack.encode() + r.key) for r in records])

    inputs, claim = poisoned(INPUTS), replace(CLAIM, topic=attack, table=attack, plan_id=attack)
    good = [replace(r, key=b"") if r is EMPTY_KEY else r for r in OUTPUTS]
    passed = judge_all(inputs, poisoned(good), [claim], reports)[claim.plan_id]
    attacked = replace(claim, plan_id="../../" + attack)
    return passed, judge_all(inputs, poisoned(without(B)), [attacked], reports)[attacked.plan_id]


def test_the_pages_show_all_results_load_nothing_and_escape_everything(tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    passed, broken = hostile_reports(reports)
    assert passed.passed
    assert not broken.passed
    front = build_pages(reports)
    assert front == reports / "index.html"
    own = sorted(reports.rglob("*.html"))
    assert build_data_docs(reports, tmp_path / "docs") == tmp_path / "docs" / "index.html"
    theirs = sorted((tmp_path / "docs").rglob("*.html"))
    assert len(own) == 4, "a front page, the table's page, and a page for each of two verdicts"
    assert len(theirs) == 3 + len(EVERY_LANE) + 1, "the same, and a page for each lane's suite"
    assert all(page.resolve().is_relative_to(reports.resolve()) for page in own)
    pages = [*own, *theirs]
    for page in pages:
        markup = Markup(page.read_text(encoding="utf-8"))
        assert "default-src 'none'" in markup.policy
        assert not {"script", "link", "img", "iframe", "object", "embed"} & markup.tags
        assert not re.search(r"@import|url\(", markup.source)
        for target in markup.targets:
            assert (page.parent / unquote(target)).resolve() in [p.resolve() for p in pages], f"{page}: {target}"
    (listed,) = (page.read_text(encoding="utf-8") for page in (reports / TABLES).iterdir())
    assert listed.index(broken.run_name) < listed.index(passed.run_name), "newest first"
    assert "14 → 9" in listed
    failure = (reports / "plans" / f"{broken.run_name}.html").read_text(encoding="utf-8")
    assert "1 key has lost its newest record." in failure
    assert "offset 1, the newest of its key" in failure
    assert "&lt;script" in failure
    before = {page: page.stat().st_mtime_ns for page in own if page.parent.name == "plans"}
    build_pages(reports)
    assert before == {page: page.stat().st_mtime_ns for page in before}, "results never change"


def test_keys_stay_out_of_results_and_pages_when_samples_are_off(tmp_path: Path) -> None:
    secret = [replace(r, key=b"secret-key") if r is B else r for r in INPUTS]
    verdict = judge_all(table(secret), table(without(B)), [CLAIM], tmp_path, samples="none")[CLAIM.plan_id]
    assert not verdict.passed
    assert all(finding.samples == () or finding.name == RECORD_COUNTS for finding in verdict.expectations)
    build_pages(tmp_path)
    build_data_docs(tmp_path, tmp_path / "docs")
    for file in tmp_path.rglob("*.*"):
        assert file.is_dir() or b"secret-key" not in file.read_bytes()


def test_pages_without_any_result_say_so(tmp_path: Path) -> None:
    assert "Nothing has been validated yet" in build_pages(tmp_path).read_text(encoding="utf-8")


def test_one_verdict_is_one_new_file(tmp_path: Path) -> None:
    for _ in range(2):
        judge_all(table(INPUTS), table(OUTPUTS), [CLAIM], tmp_path)
    files = [path for path in (tmp_path / VERDICTS).rglob("*") if path.is_file()]
    assert len(files) == 2
    claims = [json.loads(file.read_text())["claim"] for file in files]
    assert [Claim.from_dict(claim) for claim in claims] == [CLAIM, CLAIM]
