"""C36: ``firn mend`` shows first, and takes what is named only on a person's word."""

import json
import re
import shlex
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from firnlake.iceberg.catalog import Lake
from firnlake_expectations.table_report import page_of
from infra.foreign.files import on_disk
from tests.support.in_process import Firn, refused
from tests.support.lakes import NOW, TABLE, append_file, offsets, paths, row, snapshot
from tests.support.mending import lose, tear
from tests.support.pages import text_of

ON_BRANCH = "on branch firn_mended, until somebody drops the branch"
NEXT = (
    "what readers miss now can be landed again with `firn land`, if Kafka or a backup still has it\n"
    "no `firn retry` is needed; if the run finds nothing due, --force runs anyway\n"
    "next: firn run lake.records\n"
)


@pytest.fixture
def files(lake: Lake, firn: Firn) -> list[str]:
    """Two segments of orders-0 that hold different records at offset 1."""
    assert firn("create", TABLE).code == 0
    return [append_file(lake, rows) for rows in ([row(0), row(1)], [row(1, value=b"other"), row(2)])]


def again(firn: Firn, printed: str) -> tuple[int, str]:
    """Run the command that a dry run has printed; exit code and output."""
    (line,) = (one for one in printed.splitlines() if "nothing was changed" in one)
    words = shlex.split(line.partition("to take it: ")[2])
    assert words[0] == "firn"
    ran = firn(*words[1:])
    return ran.code, ran.out


def test_a_torn_file_is_shown_then_taken(lake: Lake, firn: Firn, files: list[str]) -> None:
    tear(files[1])
    before = snapshot(lake)
    ran = firn("mend", TABLE, "--file", files[1])
    assert (ran.code, ran.err, snapshot(lake)) == (0, "", before)
    for text in (
        f"snapshot {before}: to be taken from main:",
        f"  {files[1]}\n",
        "orders-0, level 0, offsets 1 to 2: 2 records, 0 tombstones",
        "damaged: 0 of 2 records can be read; branch firn_mended keeps it (table ",
        "orders-0: the log ends at offset 2, afterwards at offset 1",
        "older records of its keys again, deleted ones too, from 1 other file",
    ):
        assert text in ran.out, ran.out
    code, out = again(firn, ran.out)
    assert code == 0
    taken = f"taken from main with snapshot {snapshot(lake)}; branch firn_mended keeps it\n"
    assert out.endswith(f"{taken}{NEXT}")
    assert offsets(lake) == [0, 1]
    for named in (files[1], files[1].rpartition("/")[2]):
        repeated = firn("mend", TABLE, "--file", named, "--yes")
        assert (repeated.code, f"was taken by firn mend with snapshot {snapshot(lake)} at " in repeated.out) == (
            0,
            True,
        )


def test_a_lost_file(lake: Lake, firn: Firn, files: list[str]) -> None:
    lose(files[1])
    ran = firn("mend", TABLE, "--file", files[1], "--yes")
    assert ran.code == 0
    assert "lost: the store has no such file, so branch firn_mended can't keep it" in ran.out
    assert ran.out.endswith(f"nothing of it could be kept\n{NEXT}")
    assert offsets(lake) == [0, 1]


def test_a_conflict_is_shown_then_chosen_then_taken(lake: Lake, firn: Firn, files: list[str]) -> None:
    before = snapshot(lake)
    named = ("mend", TABLE, "--partition", "orders-0", "--offset", "1")
    ran = firn(*named)
    assert ran.code == 0
    assert "offset 1: 2 records that differ in value" in ran.out
    assert f"row 0 of {files[1]}, landed at " in ran.out
    assert "--keep FILE or DIGEST" in ran.out
    assert "other" not in ran.out.replace("others", "")
    assert f"`firn config set {TABLE} report.samples=full` shows keys and values" in ran.out
    ran = firn(*named, "--keep", files[0].rpartition("/")[2])
    newer = "its newest record with a higher offset (of 1 file with higher offsets), if there is one"
    assert f"{newer};\n    otherwise the record that stays, if it has the same key;\n" in ran.out
    assert "report.samples" not in ran.out
    assert "to be taken from main: 1 record; branch firn_mended keeps copies" in ran.out
    assert snapshot(lake) == before
    assert again(firn, ran.out)[0] == 0
    assert offsets(lake) == [0, 1, 2]
    repeated = firn(*named, "--keep", files[0], "--yes")
    assert repeated.code == 0
    told = f"what differed at offset 1 was taken by firn mend with snapshot {snapshot(lake)} at "
    assert told in repeated.out
    assert repeated.out.endswith("has no different records at offset 1; nothing to do\n")


@pytest.mark.parametrize(
    ("before", "back"), [(None, "unset {} report.samples"), ("none", "set {} report.samples=none")]
)
def test_it_says_how_to_see_the_records_and_to_hide_them_again(
    firn: Firn, files: list[str], before: str | None, back: str
) -> None:
    assert files
    if before:
        firn("config", "set", TABLE, f"report.samples={before}")
    named = ("mend", TABLE, "--partition", "orders-0", "--offset", "1")
    hidden = firn(*named).out
    show, hide = (shlex.split(command) for command in hidden.split("`")[1::2])
    assert hide == ["firn", "config", *back.format(TABLE).split()]
    assert firn(*show[1:]).code == 0
    seen = firn(*named).out
    assert "value='other'" in seen
    assert "report.samples" not in seen
    assert firn(*hide[1:]).code == 0
    assert firn(*named).out == hidden


def test_then_a_run_works_and_nothing_waits(firn: Firn, files: list[str]) -> None:
    assert firn("run", TABLE, "--engine", "local", "--force", "--now", NOW).code != 0
    assert firn("status", TABLE, "--check").code == 6
    named = ("--partition", "orders-0", "--offset", "1", "--keep", files[0])
    assert firn("mend", TABLE, *named, "--yes").code == 0
    assert firn("status", TABLE, "--check").code == 0
    assert firn("run", TABLE, "--engine", "local", "--force", "--now", NOW).code == 0
    assert firn("verify", TABLE).code == 0


def test_c26_verify_says_that_nobody_judges_it(lake: Lake, firn: Firn, files: list[str]) -> None:
    firn("mend", TABLE, "--file", files[0], "--yes")
    refused(firn("verify", TABLE, "--snapshot", snapshot(lake)), "is a mending, which is not judged")


def test_c26_a_name_that_several_files_have_is_refused(firn: Firn, lake: Lake, tmp_path: Path) -> None:
    """The files of one landing have names of their own, but another writer may use a name again."""
    firn("create", TABLE)
    for number in range(2):
        record = {"topic": "orders", "partition": 0, "offset": number, "timestamp": NOW, "key": "k", "value": "v"}
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(record), encoding="utf-8")
    firn("land", TABLE, *tmp_path.glob("*.jsonl"))
    table = lake.table(TABLE)
    name, other = sorted(path.rpartition("/")[2] for path in paths(table))
    assert "offsets" in firn("mend", TABLE, "--file", name).out
    assert name != other
    copy = tmp_path / name
    pq.write_table(table.scan().to_arrow().replace_schema_metadata().slice(0, 1), copy)
    table.add_files([copy.as_uri()])
    ran = firn("mend", TABLE, "--file", name)
    refused(ran, "2 data files of main have the name")
    assert all(path in ran.err for path in paths(lake.table(TABLE)) if path.endswith(name))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ((), "allowed: --file PATH, or --partition"),
        (("--partition", "orders-0"), "allowed: --file PATH, or --partition"),
        (("--file", "x", "--offset", "1"), "allowed: --file PATH, or --partition"),
        (("--file", "x"), "has no data file x"),
        (("--partition", "orders-0", "--offset", "x"), "--offset 'x'; allowed: an offset or a range"),
        (("--partition", "orders-0", "--offset", "2-1"), "--offset '2-1' ends before it begins"),
        (("--partition", "orders-0", "--offset", "5"), "has no record at offset 5"),
        (("--list", "--file", "x"), "without further options; allowed: --list [--json]"),
        (("--file", "x", "--json"), "--list and --json go together"),
    ],
)
def test_c26_what_can_not_be_meant_is_refused(firn: Firn, files: list[str], options: tuple[str, ...], why: str) -> None:
    assert files
    refused(firn("mend", TABLE, *options), why)


def test_explain_says_who_took_it(firn: Firn, files: list[str]) -> None:
    firn("mend", TABLE, "--file", files[0], "--yes")
    assert "(firn mend)" in firn("explain", TABLE, "--segment", files[0]).out


def test_explain_finds_a_record_that_was_taken(lake: Lake, firn: Firn, files: list[str]) -> None:
    firn("mend", TABLE, "--partition", "orders-0", "--offset", "1", "--keep", files[0], "--yes")
    first = f"C36: taken by firn mend with snapshot {snapshot(lake)} at "
    explained = ("explain", TABLE, "--key", "k", "--partition", "orders-0")
    assert f"orders-0 offset 1, level 0, on branch firn_mended\n  {first}" in firn(*explained).out
    firn("mend", TABLE, "--file", files[0], "--yes")
    second = f"C36: taken by firn mend with snapshot {snapshot(lake)} at "
    found = firn(*explained).out
    assert f"orders-0 offset 1, level 0, on branch firn_mended\n  {first}" in found
    assert f"orders-0 offsets 0 to 1, 2 records, level 0, on branch firn_mended\n  {second}" in found
    told = json.loads(firn(*explained, "--json").out)
    assert [one["record"]["offset"] for one in told["mended"]] == [0, 1, 1]


def test_explain_names_a_damaged_file_that_may_hold_the_key(firn: Firn, files: list[str]) -> None:
    tear(files[1])
    firn("mend", TABLE, "--file", files[1], "--yes")
    ran = firn("explain", TABLE, "--key", "k")
    assert ran.code == 0
    assert f"{files[1]} on branch firn_mended may hold records of this key, but can't be read" in ran.out


def test_yes_needs_a_choice(lake: Lake, firn: Firn, files: list[str]) -> None:
    assert files
    before = snapshot(lake)
    ran = firn("mend", TABLE, "--partition", "orders-0", "--offset", "1", "--yes")
    assert (ran.code, "--yes needs --keep FILE" in ran.err, snapshot(lake)) == (1, True, before)


def test_what_was_taken_is_no_history_to_free(lake: Lake, firn: Firn, files: list[str]) -> None:
    firn("mend", TABLE, "--file", files[1], "--yes")
    (told,) = json.loads(firn("status", TABLE, "--json").out)
    assert (told["space"]["history_bytes"], told["space"]["side_bytes"]) == (0, on_disk(files[1]).stat().st_size)
    assert lake.table(TABLE).metadata.refs.keys() == {"main", "firn_quarantine", "firn_tombstones", "firn_mended"}


def expire_all_but_heads(lake: Lake) -> None:
    """Expire all snapshots that are not the newest of a branch."""
    table = lake.table(TABLE)
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    old = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id not in heads]
    table.maintenance.expire_snapshots().by_ids(old).commit()


class TestList:
    """``--list`` shows what mendings took."""

    NAMED = ("mend", TABLE, "--partition", "orders-0", "--offset", "1")

    def test_nothing_was(self, firn: Firn, files: list[str]) -> None:
        assert files
        assert firn("mend", TABLE, "--list").out == f"{TABLE}: nothing was mended\n"
        assert json.loads(firn("mend", TABLE, "--list", "--json").out) == []

    def test_files_and_records(self, lake: Lake, firn: Firn, files: list[str]) -> None:
        firn(*self.NAMED, "--keep", files[0], "--yes")
        record = snapshot(lake)
        lose(files[0])
        firn("mend", TABLE, "--file", files[0], "--yes")
        lost = snapshot(lake)
        firn("mend", TABLE, "--file", files[1], "--yes")
        kept = snapshot(lake)
        listed = firn("mend", TABLE, "--list").out
        for text in (
            f"taken by firn mend with snapshot {kept} at ",
            f"  {files[1]}\n    orders-0, offsets 1 to 2, 2 records; {ON_BRANCH}\n",
            f"  {files[0]}\n    orders-0, offsets 0 to 1, 2 records; lost\n",
            "  orders-0 offset 1 sha256:",
            f"    from {files[1]}; {ON_BRANCH}\n",
        ):
            assert text in listed, listed
        assert "value=" not in listed
        told = json.loads(firn("mend", TABLE, "--list", "--json").out)
        assert [one["snapshot_id"] for one in told] == [kept, lost, record]
        assert [(one["path"], one["outcome"]) for of_one in told for one in of_one["files"]] == [
            (files[1], "kept"),
            (files[0], "lost"),
        ]
        (one,) = told[2]["records"]
        assert (one["topic_partition"], one["offset"], one["files"]) == ("orders-0", 1, [files[1]])
        assert one["shown"].startswith("(key=sha256:")

    def test_the_records_are_shown_if_the_setting_allows_it(self, firn: Firn, files: list[str]) -> None:
        firn(*self.NAMED, "--keep", files[0], "--yes")
        firn("config", "set", TABLE, "report.samples=full")
        assert "value='other'" in firn("mend", TABLE, "--list").out

    def test_after_the_branch_was_dropped_the_summary_tells(self, lake: Lake, firn: Firn, files: list[str]) -> None:
        firn(*self.NAMED, "--keep", files[0], "--yes")
        firn("mend", TABLE, "--file", files[0], "--yes")
        lake.table(TABLE).manage_snapshots().remove_branch("firn_mended").commit()
        listed = firn("mend", TABLE, "--list").out
        assert "    orders-0, offsets 0 to 1, 2 records; no longer on branch firn_mended\n" in listed
        assert f"  orders-0 offset 1\n    from {files[1]}; no longer on branch firn_mended\n" in listed

    def test_after_the_summaries_have_expired_the_branch_tells(self, lake: Lake, firn: Firn, files: list[str]) -> None:
        firn(*self.NAMED, "--keep", files[0], "--yes")
        firn("mend", TABLE, "--file", files[0], "--yes")
        append_file(lake, [row(3)])
        expire_all_but_heads(lake)
        told = json.loads(firn("mend", TABLE, "--list", "--json").out)
        assert [(one["snapshot_id"], one["at"] is None) for one in told] == [(None, False), (None, True)]
        assert [one["path"] for one in told[0]["files"]] == [files[0]]
        (one,) = told[1]["records"]
        assert (one["offset"], one["files"], one["outcome"]) == (1, [], "kept")


class TestReport:
    """The data-quality page of the table tells of a mending at once, and as long as ``--list`` does."""

    NAMED = TestList.NAMED

    def told(self, lake: Lake) -> str:
        return text_of(lake.reports_folder / page_of(TABLE))

    def test_it_tells_of_files_and_records(self, lake: Lake, firn: Firn, files: list[str]) -> None:
        firn(*self.NAMED, "--keep", files[0], "--yes")
        record = snapshot(lake)
        kept = "on branch firn_mended, until somebody drops the branch"
        assert f"{record} 1 record of {files[1]} orders-0 1 1 {kept}" in self.told(lake)
        lose(files[0])
        firn("mend", TABLE, "--file", files[0], "--yes")
        lost = snapshot(lake)
        firn("mend", TABLE, "--file", files[1], "--yes")
        told = self.told(lake)
        assert f"{snapshot(lake)} {files[1]} orders-0 1 to 2 2 {kept}" in told
        assert f"{lost} {files[0]} orders-0 0 to 1 2 lost: the store had no such file" in told
        assert told.index(files[0]) > told.index(files[1]), "newest first"

    def test_of_many_offsets_it_names_a_few(self, lake: Lake, firn: Firn) -> None:
        firn("create", TABLE)
        one, _ = (append_file(lake, [row(number, value=value) for number in range(9)]) for value in (b"a", b"b"))
        firn("mend", TABLE, "--partition", "orders-0", "--offset", "0-8", "--keep", one, "--yes")
        assert "orders-0 0, 1, 2, 3, 4 … 8 9 on branch firn_mended" in self.told(lake)

    def test_after_the_branch_was_dropped(self, lake: Lake, firn: Firn, files: list[str]) -> None:
        firn(*self.NAMED, "--keep", files[0], "--yes")
        firn("mend", TABLE, "--file", files[0], "--yes")
        lake.table(TABLE).manage_snapshots().remove_branch("firn_mended").commit()
        firn("report")
        assert self.told(lake).count("no longer on branch firn_mended") == 2

    def test_after_the_summaries_have_expired_the_branch_tells(self, lake: Lake, firn: Firn, files: list[str]) -> None:
        firn(*self.NAMED, "--keep", files[0], "--yes")
        firn("mend", TABLE, "--file", files[0], "--yes")
        append_file(lake, [row(3)])
        expire_all_but_heads(lake)
        firn("run", TABLE, "--engine", "local")
        firn("report")
        told = self.told(lake)
        assert f"– {files[0]} orders-0 0 to 1 2 on branch firn_mended" in told
        assert re.search(r"unknown – \S*/mended-\S* orders-0 1 to 1 1 on branch firn_mended", told)

    def test_a_table_with_other_faults_is_mended_all_the_same(self, lake: Lake, firn: Firn, files: list[str]) -> None:
        lake.reports_folder.parent.mkdir(parents=True, exist_ok=True)
        lake.reports_folder.write_text("no folder")
        ran = firn("mend", TABLE, "--file", files[1], "--yes")
        assert (ran.code, offsets(lake)) == (0, [0, 1])

    def test_each_path_is_named(self, firn: Firn, files: list[str], tmp_path: Path) -> None:
        assert files
        ran = firn("report", "--data-docs", tmp_path / "docs")
        report, docs = ran.out.splitlines()
        assert re.fullmatch(r"data-quality report: .*/reports/index\.html", report)
        assert docs == f"Great Expectations' Data Docs: {tmp_path / 'docs' / 'index.html'}"
