"""The seven questions of readers of a data-quality report, for a table and for all tables."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from firnlake_expectations.docs import LISTED, REASON, REFUSED, build_pages
from firnlake_expectations.judge import judge
from firnlake_expectations.refusals import Refusal
from firnlake_expectations.table_report import MendedFile, Seen, Tombstones, page_of
from firnlake_expectations.tables import AFTER, BEFORE
from firnlake_expectations.templates import TABLES
from firnlake_expectations.verdicts import verdicts
from firnlake_expectations.wording import file_name
from tests.support.judged import CLAIM, INPUTS, KAFKAS, OUTPUTS, SCHEMA, B, part, table, without
from tests.support.pages import text_of

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


def refusal(plan_id: str, partition: int = 0) -> Refusal:
    return Refusal(
        table=CLAIM.table,
        topic="orders",
        partition=partition,
        lane="clean",
        plan_id=plan_id,
        now_ms=CLAIM.now_ms,
        records=7,
        step="compact",
        reason="offset 7 <b>differs</b>",
        refused_ms=CLAIM.now_ms,
    )


def pages(reports: Path, now_ms: int | None = None) -> tuple[str, str]:
    """The front page, and the page of the table."""
    front = build_pages(reports, now_ms)
    return text_of(front), text_of(reports / TABLES / f"{file_name(CLAIM.table)}.html")


def test_kept_or_not_for_each_topic_as_of_a_snapshot(tmp_path: Path) -> None:
    judged(tmp_path, plan("one"), plan("two", topic="carts"), lost="two")
    seen("orders-0", "carts-0").write(tmp_path)
    front, own = pages(tmp_path)
    assert "broken 1 result in 1 table broke a promise and was not published." in front
    assert "at snapshot 4711" in own
    assert re.search(r"carts broken 1 14 .* orders kept 1 14", own)


def test_what_was_broken_later_counts_no_more_once_it_is_kept(tmp_path: Path) -> None:
    judged(tmp_path, plan("one"), lost="one")
    judged(tmp_path, plan("two", run=1))
    front, own = pages(tmp_path)
    assert "kept Everything that was judged keeps its promises." in front
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
    assert re.search(r"12:01:00 kept 1 0 0 14 .* 12:00:00 kept 2 0 0 28", own), "newest run first"


def test_what_was_not_judged_for_a_week_is_named(tmp_path: Path) -> None:
    judged(tmp_path, plan("one"))
    seen("orders-0", "orders-1", "orders-2").write(tmp_path)
    front, own = pages(tmp_path)
    assert "2 of 3" in front
    assert "Not judged within 7 days 2" in own
    assert "orders-1 idle nothing to rewrite never orders-2 idle nothing to rewrite never" in own
    assert "3 of 3" in pages(tmp_path, IN_2100)[0], "a verdict ages"


def test_what_is_due_or_waits_for_a_time_is_told(tmp_path: Path) -> None:
    parts = {"orders-0": "idle", "orders-1": "due", "orders-2": "waiting", "orders-3": "waiting"}
    replace(seen(), topic_partitions=parts).write(tmp_path)
    front, own = pages(tmp_path)[:2]
    assert "1 topic partition is due, 2 topic partitions wait for a time: not all records are judged yet" in own
    assert "1 topic partition is due, 2 topic partitions wait for a time" in front
    seen("orders-0").write(tmp_path)
    assert "not all records" not in pages(tmp_path)[1]


def test_what_waits_for_a_person_is_told_before_all_else(tmp_path: Path) -> None:
    """What was judged is kept, but that is not all there is to know."""
    judged(tmp_path, plan("one"))
    reason = "offset 7 holds <b>different</b> records; to delete `a <b>` one: `DELETE FROM`"
    seen("orders-0", held={"orders-1": reason}).write(tmp_path)
    front, own = pages(tmp_path)
    assert re.search(r"db.orders kept 1 topic partition [0-9]", front), "in the table's row, each in its column"
    for page in (front, own):
        assert "kept Everything that was judged keeps its promises." in page
        assert "waits 1 topic partition waits for a person." in page
        assert "orders-1" in page
        assert "offset 7 holds <b>different</b> records" in page
        assert f"firn status {CLAIM.table}" in page
    assert "1 topic partition waits for a person" in own
    assert "orders kept 1 waits 1 14" in own, "in the topic's row"
    html = (tmp_path / page_of(CLAIM.table)).read_text(encoding="utf-8")
    lines = "&lt;b&gt;different&lt;/b&gt; records<br>to delete <code>a &lt;b&gt;</code> one: <code>DELETE FROM</code>"
    assert lines in html, "clauses and commands stand apart, and what data says stays text"


def test_if_nothing_waits_the_pages_say_so(tmp_path: Path) -> None:
    seen("orders-0").write(tmp_path)
    for page in pages(tmp_path):
        assert "Nothing has been judged yet. No topic partition waits for a person." in page


def test_why_a_topic_under_delete_is_not_judged(tmp_path: Path) -> None:
    """Retention has a promise of its own, or none: nobody has to guess."""
    parts = seen("orders-0", "events-0", "forever-0", held={"events-1": "refused"})
    replace(parts, retained={"events": "retention.ms 1000", "forever": ""}).write(tmp_path)
    front, own = pages(tmp_path)
    assert "4 of 4 3 have cleanup.policy delete" in front
    assert "orders-0 idle nothing to rewrite never" in own
    assert "events-0 idle cleanup.policy is delete, so no key is compacted. Retention (retention.ms 1000) has a" in own
    assert "forever-0 idle cleanup.policy is delete without a limit of retention: nothing is dropped" in own
    assert "events-1 refused waits for a person never" in own


class TestRefusals:
    """A plan that was refused before it was judged stays in the row of its run."""

    def test_the_run_tells_it_with_the_reason_even_if_a_later_one_succeeds(self, tmp_path: Path) -> None:
        judged(tmp_path, plan("one"), plan("two", partition=1))
        refusal("three", partition=2).write(tmp_path)
        judged(tmp_path, plan("four", partition=2, run=1))
        front, own = pages(tmp_path)
        assert re.search(r"12:01:00 kept 1 0 0 14 .* 12:00:00 kept refused 3 1 0 28 .* 3 plans, 1 refused", own)
        assert "orders-2 · clean 7 records, refused by compact 2026-11-21 12:00:00 UTC offset 7 <b>differs</b>" in own
        assert "12:00:00 UTC: 3 plans, 1 refused, 0 with broken promises, 28 records" in front

    def test_a_plan_that_was_tried_twice_is_one_plan(self, tmp_path: Path) -> None:
        refusal("one").write(tmp_path)
        replace(refusal("one"), refused_ms=CLAIM.now_ms + 1, reason="the newest reason").write(tmp_path)
        judged(tmp_path, plan("one"))
        _, own = pages(tmp_path)
        assert "12:00:00 kept refused 1 1 0 14" in own
        assert "the newest reason" in own
        assert "differs" not in own

    def test_a_run_of_which_nothing_was_judged(self, tmp_path: Path) -> None:
        refusal("one").write(tmp_path)
        front, own = pages(tmp_path)
        assert "db.orders never judged" in front
        assert "12:00:00 nothing judged refused 1 1 0 0" in own
        assert "1 plan, 1 refused" in own

    def test_however_many_there_are_the_page_stays_small(self, tmp_path: Path) -> None:
        for number in range(REFUSED + 2):
            replace(refusal(str(number), partition=number), reason="long " * REASON).write(tmp_path)
        _, own = pages(tmp_path)
        assert f"{REFUSED + 2} plans, {REFUSED + 2} refused" in own
        assert own.count("refused by compact") == REFUSED
        assert "And 2 more." in own
        assert len(own) < 2 * REFUSED * REASON

    @pytest.mark.parametrize("damage", ["", "[]", "{}", '{"table": "db.orders", "partition": "x"}', "\0"])
    def test_what_is_damaged_is_left_out(self, tmp_path: Path, damage: str) -> None:
        refusal("one").write(tmp_path)
        refusal("two").write(tmp_path).write_text(damage)
        assert "1 plan, 1 refused" in pages(tmp_path)[1]


class TestMendings:
    """What a person has taken from main is listed: when, what, how much, and how long it is kept."""

    def test_each_file_has_a_row(self, tmp_path: Path) -> None:
        files = (
            MendedFile(CLAIM.now_ms, 42, "s3://lake/<b>.parquet", "orders-0", 1, 9, 9, "kept"),
            MendedFile(CLAIM.now_ms, 41, "s3://lake/x.parquet", "orders-1", None, None, 3, "dropped"),
            MendedFile(None, None, "s3://lake/y.parquet", None, None, None, None, "lost"),
        )
        replace(seen("orders-0"), mended=files).write(tmp_path)
        _, own = pages(tmp_path)
        for row in (
            "2026-11-21 12:00:00 42 s3://lake/<b>.parquet orders-0 1 to 9 9 on branch firn_mended, until somebody",
            "41 s3://lake/x.parquet orders-1 unknown 3 no longer on branch firn_mended",
            "unknown – s3://lake/y.parquet unknown unknown unknown lost: the store had no such file",
            f"firn mend {CLAIM.table} --list",
        ):
            assert row in own, own

    def test_without_any_nothing_is_said(self, tmp_path: Path) -> None:
        seen("orders-0").write(tmp_path)
        assert "Mendings" not in pages(tmp_path)[1]

    def test_many_are_cut(self, tmp_path: Path) -> None:
        one = MendedFile(CLAIM.now_ms, 42, "s3://lake/x.parquet", "orders-0", 1, 1, 1, "kept")
        replace(seen("orders-0"), mended=(one,) * (LISTED + 1)).write(tmp_path)
        _, own = pages(tmp_path)
        assert own.count("x.parquet") == LISTED
        assert f"The newest {LISTED} are listed." in own

    def test_what_an_older_version_stored_is_read(self, tmp_path: Path) -> None:
        path = seen("orders-0").write(tmp_path)
        told = json.loads(path.read_text())
        path.write_text(json.dumps({name: value for name, value in told.items() if name not in ("retained", "mended")}))
        assert "The table was read" in pages(tmp_path)[1]


def test_tombstones(tmp_path: Path) -> None:
    judged(tmp_path, plan("one"))
    seen("orders-0", tombstones=Tombstones(12, 8, 5, 2, IN_2100)).write(tmp_path)
    front, own = pages(tmp_path)
    assert "≤ 2" in front
    assert "Tombstones 12 delete horizon set: 8 Tombstones due · overdue ≤ 5 · ≤ 2 First horizon (UTC) 2100" in own


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
    assert "<script>49" not in text_of(tmp_path / "index.html")
