"""plan, retain, publish, and what is done with stages."""

import json
import os
from operator import itemgetter
from pathlib import Path

import pytest

from firnlake.iceberg.catalog import Lake
from firnlake.job.failures import mark
from firnlake.job.plan import Plan
from firnlake.job.stage import stages_of
from firnlake.table.summaries import CommitSummary
from tests.support import lakes
from tests.support.in_process import Firn, refused
from tests.support.lakes import NOW, TABLE, Fates, append, only_plan, ready, row


class TestPlan:
    """plan prints and changes nothing."""

    def test_plans_are_printed_as_json_and_written_as_files(
        self, firn: Firn, landed: str, lake: Lake, tmp_path: Path
    ) -> None:
        before = lake.table(landed).metadata_location
        folder = tmp_path / "plans"
        (printed,) = firn("plan", landed, "--lane", "merge", "--now", NOW, "--write", folder, "--json").json
        assert Plan.read(folder / f"{printed['id']}.json") == Plan.parse(json.dumps(printed), "output")
        assert (printed["lane"], printed["now_ms"], len(printed["inputs"])) == ("merge", NOW, 2)
        assert lake.table(landed).metadata_location == before
        assert stages_of(lake, landed) == []

    def test_the_same_clock_gives_the_same_plan_however_it_is_told(self, firn: Firn, landed: str) -> None:
        clocks = (NOW, "2023-11-14T22:13:20Z", "2023-11-14T22:13:20", "2023-11-15T00:13:20+02:00")
        ids = {firn("plan", landed, "--lane", "full", "--now", clock, "--json").json[0]["id"] for clock in clocks}
        assert len(ids) == 1

    def test_nothing_due_is_an_empty_list(self, firn: Firn, landed: str) -> None:
        assert firn("plan", landed, "--lane", "clean", "--json").json == []
        assert firn("plan", landed, "--lane", "clean").code == 0

    def test_force_plans_below_the_threshold(self, firn: Firn, lake: Lake) -> None:
        firn("create", TABLE)
        for offset in range(2):
            append(lake, [row(offset)])
        assert firn("plan", TABLE, "--lane", "merge", "--json").json == []
        assert len(firn("plan", TABLE, "--lane", "merge", "--force", "--json").json) == 1

    def test_c26_what_has_no_room_is_named_beside_the_plans(self, firn: Firn, lake: Lake) -> None:
        firn("create", TABLE)
        for partition in range(2):
            append(lake, [row(offset, partition=partition) for offset in range(2)])
        append(lake, [row(offset, value=os.urandom(5000), partition=2) for offset in range(4)])
        first, *_ = sorted(firn("plan", TABLE, "--lane", "full", "--force", "--json").json, key=itemgetter("partition"))
        size = sum(one["bytes"] for one in first["inputs"])
        lake.set_properties(TABLE, {"firn.run.max.bytes": str(size + 1)})
        ran = firn("plan", TABLE, "--lane", "full", "--force", "--json")
        assert [plan["partition"] for plan in ran.json] == [0]
        needs = f"its plan needs {size} bytes; available: 1 of {size + 1}"
        assert f"orders-1 full waits for the next run: {needs}" in ran.err
        assert "orders-2 L0 [0..3]" in ran.err
        assert f"bytes; available: {size + 1} (firn.run.max.bytes)" in ran.err

    def test_people_see_what_goes_in_and_why(self, firn: Firn, landed: str) -> None:
        out = firn("plan", landed, "--lane", "merge").out
        assert out.split() == [
            f"{landed}:", "plans", "topic", "partition", "lane", "segments", "records", "bytes", "why",
            "orders-0", "merge", "2", "2", *out.split()[-7:],
        ]  # fmt: skip
        assert out.endswith("2 of 2 L0 segments\n")

    def test_without_a_lane_it_plans_what_a_run_would_do(self, firn: Firn, landed: str, lake: Lake) -> None:
        lake.set_properties(landed, {"firn.min.cleanable.dirty.ratio": "1"})
        append(lake, [row(0, partition=1)])
        append(lake, [row(1, partition=1)])
        planned = firn("plan", landed, "--now", NOW, "--json").json
        assert [(plan["lane"], plan["partition"]) for plan in planned] == [("merge", 0), ("merge", 1)]
        assert firn("plan", landed, "--now", NOW, "--partition", "orders-1", "--json").json[0]["partition"] == 1
        assert firn("plan", landed, "--now", NOW, "--from-offset", "5").out == f"{landed}: nothing due\n"
        out = firn("plan", landed, "--now", NOW, "--limit", "1").out
        assert out.endswith(f"{landed}: 1 more plan; --limit shows more, --json shows all\n")

    def test_a_dry_run_shows_the_plans_of_all_lanes_and_changes_nothing(
        self, firn: Firn, landed: str, lake: Lake
    ) -> None:
        stale = lakes.opened(lake, only_plan(lake)).identifier
        lake.table(landed).delete()
        append(lake, [row(offset) for offset in range(3, 5)])
        append(lake, [row(5)])
        before = sorted(path for path in lake.home.rglob("*") if "cache" not in path.parts)
        ran = firn("run", landed, "--dry-run", "--now", NOW)
        assert (ran.code, ran.err) == (0, "")
        assert "orders-0" in ran.out
        assert "a dry run changed nothing" in ran.out
        lanes = {one["lane"]: one for one in firn("run", landed, "--dry-run", "--now", NOW, "--json").json}
        assert [lane for lane, one in lanes.items() if one["plans"]] == ["full"]
        assert lanes["full"]["publications"] == []
        assert sorted(path for path in lake.home.rglob("*") if "cache" not in path.parts) == before
        assert stages_of(lake, landed) == [stale], "a run would have swept it"


@pytest.fixture
def expired(firn: Firn, lake: Lake, tmp_path: Path) -> list[Path]:
    """Retain plans for two partitions, each of which drops offset 0 of 0 and 1."""
    firn("create", TABLE, "--property", "firn.cleanup.policy=delete", "--property", "firn.retention.ms=1000")
    for offset in range(2):
        append(lake, [row(offset, partition=partition) for partition in range(2)])
    folder = tmp_path / "plans"
    assert firn("plan", TABLE, "--lane", "retain", "--now", NOW, "--write", folder).code == 0
    return sorted(folder.iterdir(), key=lambda path: Plan.read(path).partition)


class TestRetain:
    """retain, and what plan, status, compact and run say of retention (C19)."""

    def test_retain_drops_and_drops_once(self, firn: Firn, lake: Lake, expired: list[Path]) -> None:
        done = firn("retain", *expired, "--json").json
        assert [(one["repeated"], one["counts"]["expired"]) for one in done] == [(False, 1), (False, 1)]
        assert lakes.offsets(lake) == [1, 1]
        assert [one["repeated"] for one in firn("retain", *expired, "--json").json] == [True, True]
        assert "was already published as snapshot" in firn("retain", *expired).out

    def test_c20_retain_goes_on_after_a_conflict_and_exits_with_its_code(
        self, firn: Firn, lake: Lake, expired: list[Path]
    ) -> None:
        append(lake, [row(0)])
        ran = firn("retain", *expired)
        assert (ran.code, ran.out.count("published as snapshot")) == (3, 1)
        assert ran.err.startswith("firn: plan ")
        assert lakes.offsets(lake) == [0, 0, 1, 1]

    def test_c26_plans_go_to_the_command_of_their_lane(
        self, firn: Firn, lake: Lake, expired: list[Path], tmp_path: Path
    ) -> None:
        refused(firn("compact", *expired), "is of lane retain; allowed for this step: erase, convert, merge, ")
        firn("create", "lake.other")
        append(lake, [row(0)], "lake.other")
        full = only_plan(lake, identifier="lake.other").write(tmp_path)
        refused(firn("retain", expired[0], full), "is of lane full; allowed for this step: retain")
        assert lakes.offsets(lake) == [0, 0, 1, 1], "refused before anything was done"

    def test_plan_and_status_say_what_goes_and_what_stays(self, firn: Firn, expired: list[Path]) -> None:
        assert len(expired) == 2
        assert "1 segment older than retention.ms = 1s" in firn("plan", TABLE, "--lane", "retain").out
        (status,) = firn("status", TABLE, "--json").json
        assert [part["due"] for part in status["partitions"]] == [
            {"retain": "1 segment older than retention.ms = 1s"}
        ] * 2
        assert status["partitions"][0]["retained"].endswith("it holds the log end")
        out = firn("status", TABLE).out
        assert "it holds the log end" in out
        firn("create", "lake.compacted")
        assert "retention" not in firn("status", "lake.compacted").out

    def test_run_drops_without_spark(self, firn: Firn, lake: Lake, expired: list[Path]) -> None:
        assert len(expired) == 2
        ran = firn("run", TABLE)
        assert ran.code == 0, ran
        assert "retain: 2 segments with 2 records became 0 segments with 0 records; 2 expired; snapshot " in ran.out
        assert " of 2 plans\nretain: 2 plans published; plan " in ran.out
        assert lakes.offsets(lake) == [1, 1]

    def test_a_run_names_its_validation_and_the_report_names_the_run(
        self, firn: Firn, lake: Lake, expired: list[Path]
    ) -> None:
        assert len(expired) == 2
        front = Path(firn("run", TABLE).out.rpartition("data-quality report: ")[2].strip())
        snapshot = lake.table(TABLE).current_snapshot()
        assert snapshot is not None
        told = CommitSummary.of(snapshot)
        assert told is not None
        assert told.validation in {path.name for path in (front.parent / "results" / "firn-retain").iterdir()}
        page = (front.parent / "tables" / f"{TABLE}.html").read_text(encoding="utf-8")
        assert page.count(f"<code>{snapshot.snapshot_id}</code>") == 3, "seen there, and two plans are published there"


class TestWaiting:
    """What waits for a person is told by run and status, in one line and by the exit code."""

    @pytest.fixture
    def blocked(self, firn: Firn, lake: Lake) -> str:
        """A table with three topic partitions, of which two have a record without a key."""
        firn("create", TABLE, "--property", "firn.null.keys=fail", "--property", "firn.min.cleanable.dirty.ratio=0")
        append(lake, [row(offset, partition=2) for offset in range(3)])
        append(lake, [row(0, None), row(1)])
        append(lake, [row(7, None, partition=1)])
        return TABLE

    def test_a_run_that_leaves_something_to_a_person_does_not_succeed(self, firn: Firn, blocked: str) -> None:
        for _ in range(2):
            ran = firn("run", blocked, "--engine", "local")
            assert ran.code == 6
            assert ran.err.count("\n") == 1
            assert f"firn: {blocked}: 2 of 3 topic partitions wait for a person: orders-0: segment" in ran.err
            assert "has records without a key (at least 1)" in ran.err
            assert f"`firn status {blocked}` names the others" in ran.err

    def test_status_checks(self, firn: Firn, blocked: str, lake: Lake) -> None:
        checked = firn("status", "--check")
        assert (checked.code, checked.out) == (6, "")
        assert "2 of 3 topic partitions wait for a person: orders-0: " in checked.err
        both = firn("status", "--check", "--json")
        assert (both.code, both.json[0]["table"], both.err) == (6, blocked, checked.err)
        lake.set_properties(blocked, {"firn.null.keys": "quarantine"})
        checked = firn("status", blocked, "--check")
        assert (checked.code, checked.out.strip(), checked.err) == (0, "1 table: nothing waits for a person", "")

    def test_a_refused_plan_waits_until_somebody_looks(self, firn: Firn, lake: Lake, landed: str) -> None:
        mark(lake, only_plan(lake), "compact", "the file is torn")
        checked = firn("status", landed, "--check", "--now", NOW)
        assert checked.code == 6
        assert (
            "1 of 1 topic partition waits for a person: orders-0 full waits: its plan failed in compact at "
            in checked.err
        )
        assert "the file is torn" in checked.err

    def test_an_idle_run_is_one_line(self, firn: Firn) -> None:
        firn("create", TABLE)
        ran = firn("run", TABLE)
        assert (ran.code, ran.out.strip()) == (0, f"{TABLE}: nothing due")
        append(Lake.load(), [row(0)])
        ran = firn("run", TABLE, "--property", "firn.min.cleanable.dirty.ratio=1", "--now", NOW)
        told = f"dirty ratio up to 1.000: `firn status {TABLE}` tells more, and --force runs anyway"
        assert (ran.code, ran.out) == (0, f"{TABLE}: nothing due; {told}\n")


class TestStages:
    """stages, publish, discard, sweep."""

    def test_stages_are_listed_published_and_published_once(self, firn: Firn, landed: str, lake: Lake) -> None:
        stage = ready(lake, only_plan(lake), [row(1)], Fates(superseded=1)).identifier
        (listed,) = firn("stages", landed, "--json").json
        assert (listed["stage"], listed["state"]) == (stage, "passed")
        assert stage in firn("stages", landed).out
        (done,) = firn("publish", stage, "--json").json
        assert (done["snapshot_id"], done["repeated"]) == (lakes.snapshot(lake), False)
        assert done["counts"]["superseded"] == 1
        (again,) = firn("publish", stage, "--json").json
        assert (again["snapshot_id"], again["repeated"]) == (done["snapshot_id"], True)
        assert firn("stages", landed, "--json").json == []

    def test_c20_publish_goes_on_after_a_refusal_and_exits_with_its_code(
        self, firn: Firn, landed: str, lake: Lake
    ) -> None:
        assert landed == TABLE
        stage = ready(lake, only_plan(lake), [row(1)], Fates(superseded=1)).identifier
        ran = firn("publish", f"{TABLE}/{'0' * 16}", stage, "--json")
        assert (ran.code, len(ran.json)) == (1, 1)
        assert ran.err.startswith(
            f"firn: there is no stage {TABLE}/{'0' * 16}; allowed: a stage that `firn stages {TABLE}`"
        )

    def test_a_conflict_is_exit_code_3(self, firn: Firn, landed: str, lake: Lake) -> None:
        stage = ready(lake, only_plan(lake), [row(1)], Fates(superseded=1)).identifier
        lake.table(landed).delete()
        ran = firn("publish", stage)
        assert (ran.code, ran.out) == (3, "")
        assert "plan again" in ran.err

    def test_discard_removes_the_stage(self, firn: Firn, landed: str, lake: Lake) -> None:
        stage = ready(lake, only_plan(lake), [row(1)], Fates(superseded=1)).identifier
        ran = firn("discard", stage)
        assert (ran.code, ran.out) == (0, f"discarded {stage}, deleted 1 data file\n")
        assert stages_of(lake, landed) == []
        refused(
            firn("discard", stage), f"there is no stage {stage}; allowed: a stage that `firn stages {landed}` lists"
        )

    def test_c20_discard_goes_on_after_a_refusal(self, firn: Firn, landed: str, lake: Lake) -> None:
        stage = lakes.opened(lake, only_plan(lake)).identifier
        ran = firn("discard", f"{TABLE}/{'0' * 16}", stage)
        assert ran.code == 1
        assert f"discarded {stage}" in ran.out
        assert stages_of(lake, landed) == []

    def test_c20_a_failed_stage_is_listed_shelved_shown_and_retried(self, firn: Firn, landed: str, lake: Lake) -> None:
        lake.set_properties(landed, {"firn.clean.segments": "9"})
        plan = only_plan(lake)
        lakes.compacted(lake, plan, [row(1)], Fates(superseded=1))
        mark(lake, plan, "compact", "two different records")
        (listed,) = firn("stages", landed, "--json").json
        assert (listed["state"], listed["failure"]["reason"]) == ("failed", "two different records")
        assert "failed in compact" in firn("stages", landed).out
        assert f"reduced {plan.stage} to its failure marker: its plan failed in compact" in firn("sweep", landed).out
        ran = firn("plan", landed, "--lane", "full", "--json")
        assert (ran.code, ran.json) == (0, [])
        assert "orders-0 full waits: its plan failed in compact" in firn("status", landed).out
        assert "no failed plan of orders-9 is waiting" in firn("retry", landed, "orders-9").out
        assert "orders-0 full will be retried; its plan failed in compact" in firn("retry", landed, "orders-0").out
        assert len(firn("plan", landed, "--lane", "full", "--json").json) == 1
        refused(firn("retry", landed, "orders"), "is not a topic partition; allowed: <topic>-<partition>")

    def test_sweep_says_what_went_and_why(self, firn: Firn, landed: str, lake: Lake) -> None:
        stage = lakes.opened(lake, only_plan(lake)).identifier
        assert firn("sweep", landed).out == ""
        lake.table(landed).delete()
        ran = firn("sweep", landed)
        assert ran.out.startswith(f"discarded {stage}: its input")
        assert ran.out.count("\n") == 1
