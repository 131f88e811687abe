"""The command: what it prints, in JSON where asked, and how it leaves."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli import main
from pipeline.lake import Lake, records
from pipeline.lake.folders import data_folder
from pipeline.plan import Plan
from pipeline.publish import publish
from pipeline.stage import QUARANTINED, mark, stages_of
from tests.unit import lakes
from tests.unit.lakes import NOW, TABLE, Fates, append, only_plan, ready, row

COMMANDS = (
    "create", "land", "status", "checkpoint", "plan", "compact", "validate", "publish", "retain", "stages",
    "discard", "sweep", "gc", "report", "run", "quarantine", "retry", "explain", "simulate",
)  # fmt: skip


@dataclass(frozen=True)
class Ran:
    """How one command ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What was printed, which is nothing but one JSON document."""
        return json.loads(self.out)


Firn = Callable[..., Ran]


@pytest.fixture
def lake() -> Lake:
    """The lake that the command finds: the embedded one where the test stands."""
    return Lake.load()


@pytest.fixture
def firn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Firn:
    """Run ``firn`` in this process."""

    def run(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["firn", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        printed = capsys.readouterr()
        return Ran(int(left.value.code or 0), printed.out, printed.err)

    return run


def refused(ran: Ran, text: str, code: int = 1) -> None:
    """One line on standard error, nothing on standard output."""
    assert (ran.code, ran.out) == (code, ""), ran
    assert ran.err.startswith("firn: ")
    assert ran.err.count("\n") == 1, ran.err
    assert text in ran.err


@pytest.fixture
def landed(firn: Firn, tmp_path: Path) -> str:
    """Two segments of orders-0 in a table that needs two for a merge."""
    firn("create", TABLE, "--property", "firn.merge.segments=2")
    for offset in range(2):
        path = tmp_path / f"{offset}.jsonl"
        document = {
            "key": "k",
            "value": "v",
            "topic": "orders",
            "partition": 0,
            "offset": offset,
            "timestamp": NOW - 1000,
        }
        path.write_text(json.dumps(document))
        assert firn("land", TABLE, path).code == 0
    return TABLE


@pytest.mark.parametrize("command", COMMANDS)
def test_every_subcommand_explains_itself(firn: Firn, command: str) -> None:
    ran = firn(command, "--help")
    assert ran.code == 0
    assert f"firn {command}" in ran.out


def test_without_arguments_it_lists_the_subcommands(firn: Firn) -> None:
    ran = firn()
    assert all(command in ran.out + ran.err for command in COMMANDS)


class TestTables:
    """create, land, status."""

    def test_c21_a_lag_that_can_not_be_held_is_said_by_create_and_status(self, firn: Firn) -> None:
        created = firn("create", TABLE, "--property", "firn.max.compaction.lag.ms=60000")
        assert created.code == 0
        assert created.err.startswith(
            f"firn: {TABLE}: max.compaction.lag.ms 60000 can't be held: runs come every 900000"
        )
        assert "lag.ms 60000 can't be held" in firn("status", TABLE).out
        (status,) = firn("status", TABLE, "--json").json
        assert [f"firn: {TABLE}: {text}\n" for text in status["doubts"]] == [created.err]

    def test_create_land_and_status_tell_the_same_story(self, firn: Firn, tmp_path: Path) -> None:
        created = firn(
            "create", TABLE, "--property", "firn.merge.segments=2", "--property", "firn.topic.a.b.null.keys=fail"
        )
        assert (created.code, created.err) == (0, "")
        assert created.out.startswith(f"created {TABLE} at file://")
        path = tmp_path / "a.jsonl"
        path.write_text('{"key":"k","value":null,"topic":"orders","partition":0,"offset":7,"timestamp":1}\n')
        landed = firn("land", TABLE, path, path, "--json").json
        assert (landed["files"], landed["segments"], landed["records"]) == (2, 2, 2)
        (status,) = firn("status", TABLE, "--json").json
        assert (status["table"], status["snapshot_id"]) == (TABLE, landed["snapshot_id"])
        (part,) = status["partitions"]
        assert (part["topic"], part["partition"], part["dirty_ratio"]) == ("orders", 0, 1.0)
        (level,) = part["levels"]
        assert level | {"bytes": 0} == {
            "level": 0, "segments": 2, "records": 2, "bytes": 0, "tombstones": 2, "base_offset": 7, "last_offset": 7,
        }  # fmt: skip
        assert part["due"]["merge"] == "2 of 2 L0 segments"
        assert part["due"]["full"].startswith("dirty ratio 1.000 > 0.65")

    def test_c10_create_with_transactions(self, firn: Firn, lake: Lake) -> None:
        assert firn("create", TABLE, "--transactions").code == 0
        assert records.has_transactions(lake.table(TABLE))

    def test_status_for_people_says_what_is_due_and_what_is_in_the_way(self, firn: Firn, landed: str) -> None:
        ran = firn("status", landed)
        assert ran.code == 0
        assert "orders-0" in ran.out
        assert "merge: 2 of 2 L0 segments" in ran.out

    def test_status_for_people_says_until_when(self, firn: Firn, landed: str, lake: Lake) -> None:
        assert " now " in firn("status", landed).out
        with lake.table(landed).transaction() as transaction:
            transaction.set_properties({"firn.min.compaction.lag.ms": "180000", "firn.merge.segments": "3"})
        out = firn("status", landed, "--now", NOW).out
        assert " 0:02:59 " in out
        assert "left alone until" in out

    def test_c16_checkpoint_prints_kafkas_text_and_nothing_else(
        self, firn: Firn, landed: str, lake: Lake, tmp_path: Path
    ) -> None:
        append(lake, [row(9, partition=3, level=3)])
        ran = firn("checkpoint", landed)
        assert (ran.code, ran.out, ran.err) == (0, "0\n1\norders 3 10\n", "")
        ran = firn("checkpoint", landed, "--output", tmp_path / "checkpoint")
        assert (ran.code, ran.out) == (0, "")
        assert (tmp_path / "checkpoint").read_text() == "0\n1\norders 3 10\n"

    def test_status_of_all_tables_leaves_out_what_is_none_of_records(self, firn: Firn, landed: str, lake: Lake) -> None:
        lakes.opened(lake, only_plan(lake))
        lake.catalog.create_table("lake.other", lake.table(landed).schema())
        firn("create", "second.table")
        assert [status["table"] for status in firn("status", "--json").json] == [landed, "second.table"]

    def test_status_without_tables(self, firn: Firn) -> None:
        assert firn("status").out == "catalog lake has no table of records\n"
        assert firn("status", "--json").json == []

    def test_status_has_a_clock(self, firn: Firn, landed: str, lake: Lake) -> None:
        with lake.table(landed).transaction() as transaction:
            transaction.set_properties({"firn.min.compaction.lag.ms": "5000"})
        (early,) = firn("status", landed, "--json", "--now", NOW).json
        (late,) = firn("status", landed, "--json", "--now", NOW + 5000).json
        assert early["partitions"][0]["cleanable_bytes"] == 0
        assert late["partitions"][0]["uncleanable_bytes"] == 0

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            (("create", "t"), "table 't' is not a table name; allowed: namespace.name"),
            (("create", "a.t", "--property", "x"), "--property 'x' is not a property; allowed: name=value"),
            (("create", "a.t", "--property", "firn.merge.segments=1"), "property firn.merge.segments is '1'; allowed:"),
            (("create", TABLE), "table lake.records exists already"),
            (("land", TABLE, "none.parquet"), "file none.parquet does not exist"),
            (
                ("land", "lake.other", "x.parquet"),
                "table lake.other does not exist in catalog lake; found: lake.records",
            ),
            (("status", "lake.other"), "table lake.other does not exist"),
            (("plan", "lake.other", "--lane", "merge"), "table lake.other does not exist"),
            (("stages", "lake.other"), "table lake.other does not exist"),
            (("sweep", "lake.other"), "table lake.other does not exist"),
            (("quarantine", "lake.other"), "table lake.other does not exist"),
            (("explain", "lake.other", "--key", "k"), "table lake.other does not exist"),
            (("explain", TABLE, "--key", "hex:0"), "key 'hex:0' is not hex:"),
            (("explain", TABLE, "--key", "k", "--partition", "orders-1"), "holds no segment of orders-1; found: none"),
            (("explain", TABLE, "orders-1"), "table lake.records holds no segment of orders-1; found: none"),
            (("explain", TABLE, "orders"), "'orders' is not a topic partition; allowed: <topic>-<partition>"),
            (("explain", TABLE, "--segment", "x.parquet"), "holds no segment 'x.parquet', and none of the 0 commits"),
            (("quarantine", TABLE, "--partition", "orders"), "'orders' is not a topic partition; allowed:"),
            (("quarantine", TABLE, "--export", "x.csv"), "file x.csv has suffix '.csv'; allowed: .parquet, .jsonl"),
            (("discard", TABLE), "table lake.records is not a stage"),
            (("publish", TABLE), "'lake.records' is not a stage"),
            (("status", TABLE, "--now", "noon"), "'noon' is not a time; allowed: ISO 8601"),
            (("compact", "none.json"), "plan none.json can't be read: there is no such file"),
        ],
    )
    def test_c26_a_refusal_is_one_line_and_exit_code_1(
        self, firn: Firn, lake: Lake, arguments: tuple[str, ...], text: str
    ) -> None:
        records.create(lake, TABLE, {})
        refused(firn(*arguments), text)

    def test_c26_a_catalog_that_can_not_be_reached_is_exit_code_4(
        self, firn: Firn, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PYICEBERG_CATALOG__GONE__URI", "http://me:secret@127.0.0.1:1")
        monkeypatch.setenv("PYICEBERG_CATALOG__GONE__TYPE", "rest")
        ran = firn("status", "a.b")
        refused(ran, "catalog gone (127.0.0.1:1) can't be reached", code=4)
        assert "secret" not in ran.err

    @pytest.mark.parametrize(
        "arguments",
        [
            ("plan", TABLE),
            ("plan", TABLE, "--lane", "tiers"),
            ("nothing",),
            ("land",),
            ("explain", TABLE),
            ("explain", TABLE, "--key", "k", "--segment", "s"),
        ],
    )
    def test_wrong_usage_is_exit_code_2(self, firn: Firn, arguments: tuple[str, ...]) -> None:
        assert firn(*arguments).code == 2


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
        firn("create", TABLE, "--property", "firn.run.max.records=3")
        for partition in range(2):
            append(lake, [row(offset, partition=partition) for offset in range(2)])
        append(lake, [row(offset, partition=2) for offset in range(4)])
        ran = firn("plan", TABLE, "--lane", "full", "--force", "--json")
        assert [plan["partition"] for plan in ran.json] == [0]
        assert "orders-1 full waits for the next run: it needs 2 records; available: 1 of 3" in ran.err
        assert "orders-2 L0 [0..3]" in ran.err
        assert "needs 4 records; available: 3 (firn.run.max.records)" in ran.err

    def test_people_see_what_goes_in_and_why(self, firn: Firn, landed: str) -> None:
        out = firn("plan", landed, "--lane", "merge").out
        assert "2 of 2 L0 segments" in out
        assert "orders-0" in out


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
        assert [(one["repeated"], one["accounting"]["expired"]) for one in done] == [(False, 1), (False, 1)]
        assert lakes.offsets(lake) == [1, 1]
        assert [one["repeated"] for one in firn("retain", *expired, "--json").json] == [True, True]
        assert "was published before as snapshot" in firn("retain", *expired).out

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
        refused(firn("compact", *expired), "is of the lane retain; allowed here: merge, ")
        firn("create", "lake.other")
        append(lake, [row(0)], "lake.other")
        full = only_plan(lake, identifier="lake.other").write(tmp_path)
        refused(firn("retain", expired[0], full), "is of the lane full; allowed here: retain")
        assert lakes.offsets(lake) == [0, 0, 1, 1], "refused before anything was done"

    def test_plan_and_status_say_what_goes_and_what_stays(self, firn: Firn, expired: list[Path]) -> None:
        assert len(expired) == 2
        assert "1 segments older than retention.ms 1000" in firn("plan", TABLE, "--lane", "retain").out
        (status,) = firn("status", TABLE, "--json").json
        assert [part["due"] for part in status["partitions"]] == [
            {"retain": "1 segments older than retention.ms 1000"}
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
        assert "of 2 plans: 2 segments with 2 records became 0 with 0" in ran.out
        assert "2 expired" in ran.out
        assert "report" not in ran.out
        assert lakes.offsets(lake) == [1, 1]


class TestStages:
    """stages, publish, discard, sweep."""

    def test_stages_are_listed_published_and_published_once(self, firn: Firn, landed: str, lake: Lake) -> None:
        stage = ready(lake, only_plan(lake), [row(1)], Fates(superseded=1)).identifier
        (listed,) = firn("stages", landed, "--json").json
        assert (listed["stage"], listed["state"]) == (stage, "passed")
        assert stage in firn("stages", landed).out
        (done,) = firn("publish", stage, "--json").json
        assert (done["snapshot_id"], done["repeated"]) == (lakes.snapshot(lake), False)
        assert done["accounting"]["superseded"] == 1
        (again,) = firn("publish", stage, "--json").json
        assert (again["snapshot_id"], again["repeated"]) == (done["snapshot_id"], True)
        assert firn("stages", landed, "--json").json == []

    def test_c20_publish_goes_on_after_a_refusal_and_exits_with_its_code(
        self, firn: Firn, landed: str, lake: Lake
    ) -> None:
        assert landed == TABLE
        stage = ready(lake, only_plan(lake), [row(1)], Fates(superseded=1)).identifier
        ran = firn("publish", f"{TABLE}__stage_0", stage, "--json")
        assert (ran.code, len(ran.json)) == (1, 1)
        assert ran.err.startswith(f"firn: table {TABLE}__stage_0 does not exist")

    def test_a_conflict_is_exit_code_3(self, firn: Firn, landed: str, lake: Lake) -> None:
        stage = ready(lake, only_plan(lake), [row(1)], Fates(superseded=1)).identifier
        lake.table(landed).delete()
        ran = firn("publish", stage)
        assert (ran.code, ran.out) == (3, "")
        assert "plan again" in ran.err

    def test_discard_removes_the_stage(self, firn: Firn, landed: str, lake: Lake) -> None:
        stage = ready(lake, only_plan(lake), [row(1)], Fates(superseded=1)).identifier
        ran = firn("discard", stage)
        assert (ran.code, ran.out) == (0, f"discarded {stage}, deleted 1 data files\n")
        assert stages_of(lake, landed) == []
        refused(firn("discard", stage), "does not exist")

    def test_c20_discard_goes_on_after_a_refusal(self, firn: Firn, landed: str, lake: Lake) -> None:
        stage = lakes.opened(lake, only_plan(lake)).identifier
        ran = firn("discard", f"{TABLE}__stage_0", stage)
        assert ran.code == 1
        assert f"discarded {stage}" in ran.out
        assert stages_of(lake, landed) == []

    def test_c20_a_failed_stage_is_listed_shelved_shown_and_retried(self, firn: Firn, landed: str, lake: Lake) -> None:
        lake.set_properties(landed, {"firn.clean.segments": "9"})
        plan = only_plan(lake)
        mark(lake, lakes.opened(lake, plan).identifier, plan, "compact", "two different records")
        (listed,) = firn("stages", landed, "--json").json
        assert (listed["state"], listed["failure"]["reason"]) == ("failed", "two different records")
        assert "failed in compact" in firn("stages", landed).out
        assert f"shelved {plan.stage}: it failed in compact" in firn("sweep", landed).out
        ran = firn("plan", landed, "--lane", "full", "--json")
        assert (ran.code, ran.json) == (0, [])
        assert "orders-0 full waits: it failed in compact" in firn("status", landed).out
        assert "nothing in orders-9 waits" in firn("retry", landed, "orders-9").out
        assert "orders-0 full is tried again; it failed in compact" in firn("retry", landed, "orders-0").out
        assert len(firn("plan", landed, "--lane", "full", "--json").json) == 1
        refused(firn("retry", landed, "orders"), "is not a topic partition; allowed: <topic>-<partition>")

    def test_sweep_says_what_went_and_why(self, firn: Firn, landed: str, lake: Lake) -> None:
        stage = lakes.opened(lake, only_plan(lake)).identifier
        assert firn("sweep", landed).out == ""
        lake.table(landed).delete()
        ran = firn("sweep", landed)
        assert ran.out.startswith(f"discarded {stage}: its input")
        assert ran.out.count("\n") == 1


class TestGc:
    """gc shows what is of no use any more, and removes it when it is told to."""

    @pytest.fixture
    def orphan(self, landed: str, lake: Lake) -> Path:
        path = lakes.on_disk(data_folder(lake.table(landed))) / ("0" * 16) / "lost.parquet"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"PAR1")
        os.utime(path, (0, 0))
        return path

    def test_it_shows_what_would_go_and_why(self, firn: Firn, landed: str, lake: Lake, orphan: Path) -> None:
        stage = lakes.opened(lake, only_plan(lake)).identifier
        ran = firn("gc", landed)
        assert ran.code == 0
        assert "no snapshot holds them; older than" in ran.out.replace("\n", " ")
        assert f"{landed}: 1 files, 4 bytes; nothing is changed without --yes" in ran.out
        assert stage in ran.out
        assert "Firn's home: nothing to remove" in ran.out
        assert orphan.exists()

    def test_c25_with_yes_it_goes_once(self, firn: Firn, landed: str, orphan: Path) -> None:
        (gone,) = firn("gc", landed, "--yes", "--json").json
        assert (gone["table"], gone["kind"], gone["bytes"], gone["removed"]) == (landed, "data files", 4, True)
        assert not orphan.exists()
        assert firn("gc", landed, "--yes", "--json").json == []
        assert f"{landed}: nothing to remove" in firn("gc", landed).out

    def test_plan_files_are_of_all_tables(self, firn: Firn, landed: str, lake: Lake) -> None:
        path = only_plan(lake).write(lake.plans_folder)
        os.utime(path, (0, 0))
        (shown,) = firn("gc", landed, "--json").json
        assert (shown["table"], shown["kind"], shown["removed"]) == (None, "plan", False)
        assert path.exists()
        assert "Firn's home: removed" in firn("gc", landed, "--yes").out
        assert not path.exists()

    def test_c20_a_table_that_is_refused_does_not_keep_the_others(self, firn: Firn, landed: str, orphan: Path) -> None:
        ran = firn("gc", "no.table", landed, "--yes", "--json")
        assert (ran.code, len(ran.json)) == (1, 1)
        assert "table no.table does not exist" in ran.err
        assert not orphan.exists()


class TestQuarantine:
    """quarantine lists and exports (C5)."""

    @pytest.fixture
    def plan(self, lake: Lake) -> str:
        """The plan that moved the records without a key at offsets 0 and 1 of orders-0 to the quarantine."""
        records.create(lake, TABLE, {})
        lost = [row(0, key=None, value=b"who \x00am I"), row(1, key=None, value=None)]
        append(lake, [*lost, row(2)])
        moved = [one | {"level": QUARANTINED} for one in lost]
        return publish(lake, ready(lake, only_plan(lake), [*moved, row(2)], Fates(quarantined=2)).identifier).plan_id

    def test_without_a_quarantine_it_says_so(self, firn: Firn, landed: str) -> None:
        assert firn("quarantine", landed) == Ran(0, f"{landed}: no record is in quarantine\n", "")
        assert firn("quarantine", landed, "--json").json == []
        assert firn("quarantine", landed, "--export", "x.jsonl").out == f"{landed}: nothing to export\n"

    def test_batches_say_where_why_and_by_which_plan(self, firn: Firn, plan: str) -> None:
        batch = {
            "topic": "orders", "partition": 0, "reason": "null key", "plan": plan,
            "records": 2, "base_offset": 0, "last_offset": 1,
        }  # fmt: skip
        assert firn("quarantine", TABLE, "--json").json == [batch]
        assert firn("quarantine", TABLE, "--json", "--plan", "other").json == []
        assert firn("quarantine", TABLE, "--json", "--partition", "orders-0").json == [batch]
        assert all(text in firn("quarantine", TABLE).out for text in ("orders-0", "null key", plan))

    def test_records_show_how_their_values_begin_where_reports_may(self, firn: Firn, plan: str, lake: Lake) -> None:
        kept_back, _ = firn("quarantine", TABLE, "--records", "--json").json
        assert (kept_back["value_bytes"], kept_back["value"]) == (9, None)
        lake.set_properties(TABLE, {"firn.report.samples": "full"})
        first, second = firn("quarantine", TABLE, "--records", "--json").json
        assert (first["offset"], first["timestamp"], first["plan"]) == (0, "2023-11-14T22:12:20.000Z", plan)
        assert (first["value_bytes"], first["value"]) == (9, "who \\x00am I")
        assert (second["offset"], second["value_bytes"], second["value"]) == (1, None, None)
        shown = firn("quarantine", TABLE, "--records", "--limit", "1").out
        assert "who \\x00am I" in shown
        assert "1 of 2 records" in shown

    def test_records_are_exported(self, firn: Firn, plan: str, tmp_path: Path) -> None:
        ran = firn("quarantine", TABLE, "--export", tmp_path / "lost.parquet", "--plan", plan)
        assert (ran.code, ran.out) == (0, f"wrote 2 records to {tmp_path / 'lost.parquet'}\n")
        refused(firn("quarantine", TABLE, "--export", tmp_path / "lost.parquet"), "exists already; allowed: a new file")


class TestExplain:
    """explain tells which rule keeps a record, where a segment goes, and which commit took what is gone."""

    @pytest.fixture
    def published(self, landed: str, lake: Lake) -> str:
        """The plan by which offset 1 superseded offset 0; a tombstone of the same key is the log end."""
        assert landed == TABLE
        plan = publish(lake, ready(lake, only_plan(lake), [row(1)], Fates(superseded=1)).identifier).plan_id
        append(lake, [row(2, value=None)])
        return plan

    def test_people_read_rules_times_and_commits(self, firn: Firn, published: str) -> None:
        out = firn("explain", TABLE, "--key", "k", "--now", NOW).out
        assert "orders-0 offset 1, level 3, in file:" in out
        assert "kept by C2: superseded by offset 2; goes with the next full, which is" in out
        assert "orders-0 offset 2, level 0, a tombstone, in file:" in out
        assert "kept by C4: a tombstone, but the highest offset of its topic partition" in out
        assert "orders-0 offset 0, level 0, removed\n  C2: superseded by offset 1: snapshot " in out
        assert f"(lane full, plan {published}: forced, dirty ratio 1.000)" in out
        assert out.endswith("history: all 1 commits that removed records were looked through\n")

    def test_programs_read_the_same_as_json(self, firn: Firn, published: str) -> None:
        found = firn("explain", TABLE, "--key", "k", "--now", NOW, "--json").json
        assert found["key"] == [{"text": "k", "hex": "6b"}]
        first, second = found["kept"]
        assert first["record"]["topic_partition"] == "orders-0"
        assert (first["record"]["timestamp"], first["record"]["delete_horizon"]) == ("2023-11-14T22:12:20.000Z", None)
        assert (first["reason"]["rule"], second["reason"]["rule"]) == ("C2", "C4")
        (removed,) = found["removed"]
        assert (removed["record"]["offset"], removed["commit"]["plan"]) == (0, published)

    def test_a_key_that_is_nowhere_is_no_error(self, firn: Firn, published: str) -> None:
        ran = firn("explain", TABLE, "--key", "hex:00", "--partition", "orders-0")
        assert (ran.code, ran.err) == (0, "")
        assert "no record of this key is in the table" in ran.out
        assert published not in ran.out

    def test_a_wait_says_until_when(self, firn: Firn, landed: str, lake: Lake) -> None:
        with lake.table(landed).transaction() as transaction:
            transaction.set_properties({"firn.min.compaction.lag.ms": "10800000"})
        out = firn("explain", landed, "--segment", "orders-0@0", "--now", NOW).out
        assert "goes with merge now: 2 of 2 L0 segments (plan " in out
        assert "C11: is younger than min.compaction.lag.ms = 10800000, until 2023-11-15T01:13:19.000Z (in 2 h)" in out

    def test_a_topic_partition_says_what_is_due_missing_and_in_the_way(
        self, firn: Firn, landed: str, lake: Lake
    ) -> None:
        with lake.table(landed).transaction() as transaction:
            transaction.set_properties({"firn.min.compaction.lag.ms": "10800000"})
        out = firn("explain", landed, "orders-0", "--now", NOW).out
        assert "merge: due, 2 segments (plan " in out
        assert "full: not due, C11: nothing may be cleaned: orders-0 L0 [0..0]" in out
        assert "blocked by C11: orders-0 L0 [0..0] " in out
        assert "until 2023-11-15T01:13:19.000Z (in 2 h)" in out
        found = firn("explain", landed, "orders-0", "--now", NOW, "--json").json
        assert (found["topic_partition"], found["head_segments"], found["cleaned_through"]) == ("orders-0", 2, None)
        (merge,) = [one for one in found["lanes"] if one["lane"] == "merge"]
        assert merge["reason"]["text"] == "2 of 2 L0 segments"

    def test_a_segment_that_is_gone_names_its_commit(self, firn: Firn, landed: str, lake: Lake) -> None:
        path = only_plan(lake).inputs[0].path
        done = publish(lake, ready(lake, only_plan(lake), [row(1)], Fates(superseded=1)).identifier)
        out = firn("explain", landed, "--segment", path.rpartition("/")[2]).out
        assert f"no longer live: removed by snapshot {done.snapshot_id} of " in out
        (found,) = firn("explain", landed, "--segment", path, "--json").json
        assert (found["segment"]["path"], found["removed_by"]["plan"]) == (path, done.plan_id)


def test_the_installed_command_leaves_as_it_says(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("firn")
    ran = subprocess.run([command, "status", "no.table"], cwd=tmp_path, capture_output=True, text=True, check=False)
    refused(Ran(ran.returncode, ran.stdout, ran.stderr), "table no.table does not exist in catalog lake")


def test_metadata_commands_start_no_jvm_and_load_neither_spark_nor_great_expectations(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from pipeline.cli import main\n"
        "sys.argv = ['firn', 'status']\n"
        "try:\n    main()\nexcept SystemExit as left:\n    assert not left.code\n"
        "heavy = {'pyspark', 'great_expectations', 'airflow'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    root = Path(__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(root), "HOME": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr


class TestSimulate:
    """``firn simulate``: options, tables and refusals."""

    SMALL = ("simulate", "--hours", 2, "--keys", 100)

    def test_it_shows_the_rules_side_by_side(self, firn: Firn) -> None:
        shown = firn(*self.SMALL)
        assert shown.code == 0
        for text in ("firn", "kafka", "warpstream", "write", "space", "jobs", "seed 0"):
            assert text in shown.out

    def test_json_holds_workload_and_figures(self, firn: Firn) -> None:
        found = firn(*self.SMALL, "--rules", "kafka", "--distribution", "zipf", "--seed", 3, "--json").json
        assert found["workload"] | {"distribution": "zipf", "seed": 3, "keys": 100} == found["workload"]
        (result,) = found["results"]
        assert result["rules"] == "kafka"
        assert result["plans_per_hour"]["merge"] == 0

    def test_a_policy_changes_firns_rules_alone(self, firn: Firn) -> None:
        plain, changed = (
            firn(*self.SMALL, *more, "--json").json["results"]
            for more in ((), ("--policy", "merge.segments=2", "--policy", "firn.full.interval.ms=-1"))
        )
        assert plain[0] != changed[0]
        assert plain[1:] == changed[1:]

    def test_a_table_gives_its_policy_and_arrivals(self, firn: Firn, lake: Lake) -> None:
        records.create(lake, TABLE, {"firn.min.cleanable.dirty.ratio": "0.9", "firn.topic.other.merge.segments": "2"})
        for first in (0, 2):
            append(lake, [row(first), row(first + 1)])
        arguments = ("--rate", 1, "--hours", 2, "--keys", 9, "--rules", "firn", "--json")
        found = firn("simulate", "--table", TABLE, *arguments).json
        assert found["workload"]["records_per_segment"] == 2
        size = found["workload"]["record_bytes"]
        same = ("--records-per-segment", 2, "--record-bytes", size, "--policy", "min.cleanable.dirty.ratio=0.9")
        assert firn("simulate", *same, *arguments).json["results"] == found["results"]

    def test_a_plot_is_written(self, firn: Firn, tmp_path: Path) -> None:
        pytest.importorskip("matplotlib")
        shown = firn(*self.SMALL, "--plot", tmp_path / "a.svg")
        assert f"plot: {tmp_path / 'a.svg'}" in shown.out.replace("\n", "")
        assert (tmp_path / "a.svg").exists()

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            (("--rate", 0), "rate is 0.0; allowed: a number greater than 0"),
            (("--delete-ratio", -1), "delete-ratio is -1.0; allowed: a number between 0 and 1"),
            (("--every", 0), "every is 0 ms; allowed: at least"),
            (("--policy", "merge.segments"), "--policy 'merge.segments' is not a property; allowed: name=value"),
            (("--policy", "merge.segments=1"), "property firn.merge.segments is '1'; allowed: "),
            (("--rules", "mine"), "rules 'mine' are unknown; allowed: firn, kafka, warpstream"),
            (("--table", "lake.nothing"), "lake.nothing"),
            (("--plot", "picture.gif"), "plot picture.gif ends in '.gif'; allowed: .png, .svg"),
        ],
    )
    def test_c26_what_makes_no_sense_is_refused(self, firn: Firn, options: tuple[object, ...], text: str) -> None:
        refused(firn("simulate", *options), text)

    def test_c26_an_unknown_distribution_is_wrong_usage(self, firn: Firn) -> None:
        ran = firn("simulate", "--distribution", "normal")
        assert (ran.code, ran.out) == (2, "")
        assert "'normal' is not one of" in ran.err
