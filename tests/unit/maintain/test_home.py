"""Plan files and reports in Firn's home go when they are past their limits and nobody waits for them."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from firnlake import clock
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.deleter import Finding, Kind
from firnlake.job import lease
from firnlake.job.collect import discard
from firnlake.job.failures import mark, report_refusal
from firnlake.job.plan import Plan
from firnlake.maintain.maintain import maintain_home
from firnlake.table.policy import DAY_MS
from firnlake_expectations.claim import Lane, Verdict
from tests.support import lakes
from tests.support.judged import CLAIM, verdict_document
from tests.support.lakes import TABLE, append_two, only_plan, row

HOUR_MS = 3_600_000


def collect(
    lake: Lake, after_ms: int = 0, *, remove: bool = True, working: frozenset[str] | None = None
) -> list[Finding]:
    """The collector's findings this much later; ``working``: the runs that the scheduler says are at work."""
    works = None if working is None else lambda _, run_id: run_id in working
    return maintain_home(lake, clock.now_ms() + after_ms, remove=remove, works=works)


class TestPlans:
    """Plan files are kept a day for who tries again, and as long as anybody waits for one."""

    @pytest.fixture
    def file(self, lake: Lake, plan: Plan) -> Path:
        return plan.write(lake.plans_folder)

    def test_it_stays_for_a_day(self, lake: Lake, file: Path) -> None:
        assert collect(lake, DAY_MS - HOUR_MS) == []
        (found,) = collect(lake, DAY_MS + HOUR_MS, remove=False)
        assert (found.kind, found.name, found.goes) == (Kind.PLAN, str(file), True)
        assert (found.bytes, found.reason) == (file.stat().st_size, "older than FIRN_PLANS_AGE_MS = 86400000")
        assert file.exists()
        assert len(collect(lake, DAY_MS + HOUR_MS)) == 1
        assert not file.exists()
        assert collect(lake, DAY_MS + HOUR_MS) == []

    def test_c25_a_stage_that_may_still_be_published_waits_for_it(self, lake: Lake, plan: Plan, file: Path) -> None:
        """As of a run that takes longer than a day."""
        stage = lakes.opened(lake, plan)
        (found,) = collect(lake, 9 * DAY_MS)
        assert (found.goes, found.reason) == (
            False,
            f"stage {stage.identifier} holds the result of the plan, which may still be published",
        )
        assert file.exists()
        discard(lake, stage.identifier)
        assert collect(lake, 9 * DAY_MS)
        assert not file.exists()

    def test_c20_a_failure_marker_does_not(self, lake: Lake, plan: Plan, file: Path) -> None:
        lakes.opened(lake, plan)
        mark(lake, plan, "compact", "told so")
        collect(lake, 2 * DAY_MS)
        assert not file.exists()

    def test_c25_the_run_that_made_it_waits_for_it(self, lake: Lake, plan: Plan) -> None:
        lease.take(lake.runs_folder, TABLE, "the run", lambda _: True)
        file = plan.write(lake.plans_folder)
        (found,) = collect(lake, 9 * DAY_MS, working=frozenset({"the run"}))
        assert (found.goes, found.reason) == (False, f"run the run is working on {TABLE}")
        assert not collect(lake, 9 * DAY_MS)[0].goes, "who can't ask the scheduler believes the lease"
        assert file.exists()
        lease.give_back(lake.runs_folder, TABLE, "the run")
        collect(lake, 9 * DAY_MS)
        assert not file.exists()

    def test_a_run_that_died_does_not(self, lake: Lake, plan: Plan) -> None:
        lease.take(lake.runs_folder, TABLE, "the run", lambda _: True)
        file = plan.write(lake.plans_folder)
        collect(lake, 9 * DAY_MS, working=frozenset({"another one"}))
        assert not file.exists()

    def test_nor_a_run_that_began_later(self, lake: Lake, file: Path) -> None:
        lease.take(lake.runs_folder, TABLE, "the run", lambda _: True)
        os.utime(file, (0, 0))
        collect(lake)
        assert not file.exists()

    def test_the_lease_of_a_name_that_no_file_may_have(self, tmp_path: Path) -> None:
        lease.take(tmp_path / "runs", "shop.a/b %", "the run", lambda _: True)
        held = lease.holder(tmp_path / "runs", "shop.a/b %")
        assert held is not None
        assert held.run_id == "the run"

    @pytest.mark.parametrize("name", ["notes.json", "0123456789abcdef.txt", "0123456789ABCDEF.json"])
    def test_other_files_are_not_ours(self, lake: Lake, name: str) -> None:
        path = lake.plans_folder / name
        path.parent.mkdir(parents=True)
        path.write_text("{}")
        assert collect(lake, 1000 * DAY_MS) == []
        assert path.exists()

    def test_what_is_torn_goes(self, lake: Lake, file: Path) -> None:
        file.write_text(file.read_text()[:100])
        collect(lake, 2 * DAY_MS)
        assert not file.exists()

    def test_beyond_the_bytes_the_oldest_goes(self, lake: Lake, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        older = file.with_name("0123456789abcdef.json")
        older.write_text(file.read_text())
        os.utime(older, (1_700_000_000, 1_700_000_000))
        monkeypatch.setenv("FIRN_PLANS_AGE_MS", "-1")
        monkeypatch.setenv("FIRN_PLANS_BYTES", str(file.stat().st_size))
        (found,) = collect(lake, 2 * HOUR_MS)
        reason = f"the oldest, beyond FIRN_PLANS_BYTES = {file.stat().st_size}"
        assert (found.name, found.reason) == (str(older), reason)
        assert file.exists()
        monkeypatch.setenv("FIRN_PLANS_BYTES", "0")
        assert collect(lake, HOUR_MS // 2) == [], "its run may be at work"
        assert len(collect(lake, 2 * HOUR_MS)) == 1

    @pytest.mark.parametrize("name", ["PLANS_AGE_MS", "PLANS_BYTES", "REPORTS_AGE_MS", "REPORTS_BYTES"])
    @pytest.mark.parametrize("value", ["1d", "-2", "", "1.5"])
    def test_c26_a_limit_that_is_none(
        self, lake: Lake, file: Path, name: str, value: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(f"FIRN_{name}", value)
        with pytest.raises(RefusedError, match=f"FIRN_{name} is '{value}'; allowed: a whole number, 0 or more, or -1"):
            collect(lake, 9 * DAY_MS)
        assert file.exists()


class TestReports:
    """Reports are kept for 90 days and 10 GiB; the newest of each lane, and of what failed and waits, for ever."""

    def test_an_old_one_goes_with_its_pages(self, lake: Lake) -> None:
        old, new = report(lake, "old", days=91), report(lake, "new", days=1)
        (lake.reports_folder / "index.html").write_text("front page")
        (found,) = collect(lake, remove=False)
        assert (found.kind, found.name, found.goes, found.files) == (Kind.REPORT, "old", True, 2)
        assert found.reason == "older than FIRN_REPORTS_AGE_MS = 7776000000"
        assert all(path.exists() for path in old)
        assert collect(lake)[0].goes
        assert not any(path.exists() for path in old)
        assert all(path.exists() for path in new)
        assert (lake.reports_folder / "index.html").exists()
        assert collect(lake) == []

    def test_the_result_of_a_job_goes_unless_a_verdict_of_it_stays(self, lake: Lake) -> None:
        report(lake, "older", days=120)
        report(lake, "newest", days=110)
        gone, kept = result_of(lake, "older", 120), result_of(lake, "newest", 110)
        found = {one.name: one.goes for one in collect(lake)}
        assert found == {"older": True, "job-older": True, "newest": False, "job-newest": False}
        assert not gone.parents[1].exists(), "its folders as well"
        assert kept.exists()

    def test_the_newest_of_each_table_and_lane_stays(self, lake: Lake) -> None:
        report(lake, "older", days=120)
        report(lake, "newest-full", days=110)
        report(lake, "newest-merge", days=115, lane="merge")
        report(lake, "other-table", days=119, table="lake.others")
        found = {one.name: one for one in collect(lake)}
        assert {name for name, one in found.items() if one.goes} == {"older"}
        assert found["newest-merge"].reason == f"the newest report of {TABLE}, lane merge"
        assert found["other-table"].reason == "the newest report of lake.others, lane full"

    def test_c20_what_failed_and_still_waits_stays(self, lake: Lake, table: str) -> None:
        append_two(lake, row(0), row(1))
        plan = only_plan(lake)
        lakes.opened(lake, plan)
        mark(lake, plan, "validate", "two records of a key")
        failed = report(lake, "failed", days=200, passed=False, plan=plan.id)
        report(lake, "solved", days=200, passed=False, plan="f" * 16)
        report(lake, "passed", days=200, plan=plan.id)
        report(lake, "newest", days=1)
        found = {one.name: one for one in collect(lake)}
        assert {name for name, one in found.items() if one.goes} == {"solved", "passed"}
        assert found["failed"].reason == f"the validation failed, and orders-0 waits (firn retry {table})"
        discard(lake, plan.stage)
        collect(lake)
        assert not failed[0].exists()

    def test_beyond_the_bytes_the_oldest_goes(self, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        files = {days: report(lake, f"day-{days}", days=days) for days in (1, 2, 3, 4)}
        size = sum(path.stat().st_size for path in files[1])
        monkeypatch.setenv("FIRN_REPORTS_BYTES", str(2 * size))
        assert [one.name for one in collect(lake) if one.goes] == ["day-4", "day-3"]
        assert all(path.exists() for days in (1, 2) for path in files[days])
        assert collect(lake) == []

    def test_c25_what_a_dead_collector_or_builder_left_goes(self, lake: Lake) -> None:
        result, *pages = report(lake, "run", days=2)
        result.unlink()
        unfinished = lake.reports_folder / "plans" / ".other.html.0123abcd"
        unfinished.write_text("<html>")
        assert [one.name for one in collect(lake, HOUR_MS // 2) if one.goes] == ["run"], "a page may be on its way"
        assert not any(path.exists() for path in pages)
        (found,) = collect(lake, 2 * HOUR_MS)
        assert (found.name, found.reason) == ("other", "the verdict of the page is gone")
        assert not unfinished.exists()

    def test_an_old_refusal_goes(self, lake: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
        report_refusal(lake, plan, "compact", "told so")
        later = clock.now_ms() + 91 * DAY_MS
        monkeypatch.setattr(clock, "now_ms", lambda: later)
        (stored,) = (lake.reports_folder / "refusals").iterdir()
        (found,) = collect(lake, remove=False)
        assert (found.name, found.goes) == (stored.stem, True)
        assert found.reason == "older than FIRN_REPORTS_AGE_MS = 7776000000"
        collect(lake)
        assert not stored.exists()

    def test_a_torn_result_is_nobodys_newest(self, lake: Lake) -> None:
        torn, *_ = report(lake, "torn", days=200)
        torn.write_text("{")
        os.utime(torn, (0, 0))
        assert collect(lake)[0].goes

    def test_a_home_without_any_has_nothing_to_collect(self, lake: Lake) -> None:
        assert collect(lake) == []


def report(
    lake: Lake,
    name: str,
    days: int,
    *,
    table: str = TABLE,
    lane: Lane = "full",
    passed: bool = True,
    plan: str = "0" * 16,
) -> list[Path]:
    """A verdict of so many days ago as Firn stores it: the document, then its page."""
    then = clock.now_ms() - days * DAY_MS
    claim = replace(CLAIM, table=table, lane=lane, plan_id=plan, partition=0, now_ms=then)
    verdict = Verdict(plan, passed, (), 0.1, name, f"job-{name}")
    document = verdict_document(claim, verdict, clock.from_ms(then))
    root = lake.reports_folder
    return written(
        days, {root / "verdicts" / f"{name}.json": json.dumps(document), root / "plans" / f"{name}.html": ""}
    )


def result_of(lake: Lake, name: str, days: int) -> Path:
    """The result of the job of verdict ``name``, as Great Expectations stores it."""
    folder = lake.reports_folder / "results" / "firn-full" / f"job-{name}" / "20231114T221320.000000Z"
    return written(days, {folder / "firn-lake.records.json": "{}"})[0]


def written(days: int, contents: dict[Path, str]) -> list[Path]:
    """Files of so many days ago."""
    then = clock.now_ms() - days * DAY_MS
    for path, content in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        os.utime(path, (then / 1000, then / 1000))
    return list(contents)
