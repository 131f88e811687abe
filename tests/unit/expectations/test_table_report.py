"""The seven questions of readers of a data-quality report, for a table and for all tables."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from firnlake_expectations.docs import build_pages
from firnlake_expectations.judge import judge
from firnlake_expectations.table_report import Seen, Tombstones
from firnlake_expectations.tables import AFTER, BEFORE
from firnlake_expectations.templates import TABLES
from firnlake_expectations.verdicts import verdicts
from firnlake_expectations.wording import file_name
from tests.support.judged import CLAIM, INPUTS, KAFKAS, OUTPUTS, SCHEMA, B, part, table, without

if TYPE_CHECKING:
    from pathlib import Path

    from firnlake_expectations.claim import Claim, Verdict

DAY_MS = 86_400_000
IN_2100 = 4_102_444_800_000
"""Long after every verdict of these tests."""


def judged(reports: Path, *claims: Claim, lost: str = "") -> dict[str, Verdict]:
    """The verdicts on ``claims`` as one job; plan ``lost`` has lost a key."""
    per_claim = [
        judge(
            [part(BEFORE, table(INPUTS)), part(AFTER, table(without(B) if one.plan_id == lost else OUTPUTS))],
            SCHEMA,
            [CLAIM],
            KAFKAS,
        )[0]
        for one in claims
    ]
    return verdicts(claims, per_claim, reports, job=claims[0].plan_id)


def plan(name: str, partition: int = 0, run: int = 0, topic: str = "orders") -> Claim:
    at = CLAIM.now_ms + run * 60_000
    return replace(CLAIM, plan_id=name, partition=partition, topic=topic, now_ms=at, snapshot_id=100 + run)


def seen(
    *parts: str,
    published: dict[str, int] | None = None,
    tombstones: Tombstones | None = None,
    held: dict[str, str] | None = None,
) -> Seen:
    conditions = dict.fromkeys(parts, "idle") | dict.fromkeys(held or {}, "refused")
    return Seen(CLAIM.table, 4711, IN_2100, conditions, held or {}, tombstones or Tombstones(), published or {})


def text_of(page: Path) -> str:
    """What a reader reads."""
    body = page.read_text(encoding="utf-8").split("<main>")[1]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


def pages(reports: Path, now_ms: int | None = None) -> tuple[str, str]:
    """The front page, and the page of the table."""
    front = build_pages(reports, now_ms)
    return text_of(front), text_of(reports / TABLES / f"{file_name(CLAIM.table)}.html")


def test_kept_or_not_for_each_topic_as_of_a_snapshot(tmp_path: Path) -> None:
    judged(tmp_path, plan("one"), plan("two", topic="carts"), lost="two")
    seen("orders-0", "carts-0").write(tmp_path)
    front, own = pages(tmp_path)
    assert "1 table of 1 with a broken promise" in front
    assert "at snapshot 4711" in own
    assert re.search(r"carts broken 1 14 .* orders kept 1 14", own)


def test_what_was_broken_later_counts_no_more_once_it_is_kept(tmp_path: Path) -> None:
    judged(tmp_path, plan("one"), lost="one")
    judged(tmp_path, plan("two", run=1))
    front, own = pages(tmp_path)
    assert "none with a broken promise" in front
    assert "not published" in own, "the verdict is listed still"


def test_a_failure_names_rule_topic_partition_and_offset_and_what_became_of_it(tmp_path: Path) -> None:
    judged(tmp_path, plan("one", partition=3), lost="one")
    for page in pages(tmp_path):
        assert "orders-3 · clean" in page
        assert "1 key has lost its newest record. At offset 1. Promised: The newest record of every key is kept" in page
        assert "Not published: the table is as it was before" in page


def test_how_much_was_looked_at_in_each_run(tmp_path: Path) -> None:
    judged(tmp_path, plan("one"), plan("two", partition=1))
    judged(tmp_path, plan("three", run=1))
    _, own = pages(tmp_path)
    assert "Looked at 28 records" in own, "the newest verdict of each topic partition"
    assert re.search(r"12:01:00 kept 1 0 14 .* 12:00:00 kept 2 0 28", own), "newest run first"


def test_what_was_not_judged_for_a_week_is_named(tmp_path: Path) -> None:
    judged(tmp_path, plan("one"))
    seen("orders-0", "orders-1", "orders-2").write(tmp_path)
    front, own = pages(tmp_path)
    assert "2 of 3" in front
    assert "Not judged within 7 days 2" in own
    assert "orders-1 idle never orders-2 idle never" in own
    assert "3 of 3" in pages(tmp_path, IN_2100)[0], "a verdict ages"


def test_what_waits_for_a_person_is_told_before_all_else(tmp_path: Path) -> None:
    """What was judged is kept, but that is not all there is to know."""
    judged(tmp_path, plan("one"))
    seen("orders-0", held={"orders-1": "offset 7 holds <b>different</b> records"}).write(tmp_path)
    front, own = pages(tmp_path)
    assert "none with a broken promise. In 1 table, topic partitions wait for a person." in front
    assert "kept 1 blocked" in front
    for page in (front, own):
        assert "orders-1" in page
        assert "offset 7 holds <b>different</b> records" in page
        assert f"firn status {CLAIM.table}" in page
    assert "1 topic partition waits for a person" in own


def test_tombstones(tmp_path: Path) -> None:
    judged(tmp_path, plan("one"))
    seen("orders-0", tombstones=Tombstones(12, 8, 5, 2, IN_2100)).write(tmp_path)
    front, own = pages(tmp_path)
    assert "≤ 2" in front
    assert "Tombstones 12 8 with a horizon Due · overdue ≤ 5 · ≤ 2 Oldest horizon 2100-01-01 00:00:00" in own


def test_from_a_verdict_to_its_snapshots(tmp_path: Path) -> None:
    (given,) = judged(tmp_path, plan("one")).values()
    judged(tmp_path, plan("two", run=1))
    seen("orders-0", published={given.validation: 815}).write(tmp_path)
    _, own = pages(tmp_path)
    assert re.search(r"two 101 – .* one 100 815", own)


def test_a_table_that_was_never_judged(tmp_path: Path) -> None:
    seen("orders-0").write(tmp_path)
    front, own = pages(tmp_path)
    assert "never judged" in front
    assert "Nothing of this table has been validated yet." in own


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"tombstones": {}, "table": 1}', "\0"])
def test_what_was_seen_may_be_damaged(tmp_path: Path, damage: str) -> None:
    judged(tmp_path, plan("one"))
    seen("orders-0").write(tmp_path).write_text(damage)
    assert "Firn has not stored what it sees of the table" in pages(tmp_path)[1]


def test_long_and_hostile_names_have_pages(tmp_path: Path) -> None:
    for name in ("a/<script>{{7*7}}", "x" * 300):
        judged(tmp_path, replace(plan("one"), table=name))
    front = build_pages(tmp_path).read_text(encoding="utf-8")
    assert len(list((tmp_path / TABLES).glob("*.html"))) == 2
    assert "&lt;script&gt;{{7*7}}" in front
    assert "49" not in text_of(tmp_path / "index.html")
