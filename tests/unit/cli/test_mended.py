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
    """Two segments of orders-0, at offsets 0 to 1 and 1 to 2."""
    assert firn("create", TABLE).code == 0
    return [append_file(lake, rows) for rows in ([row(0), row(1)], [row(1), row(2)])]


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


def test_explain_says_who_took_it(firn: Firn, files: list[str]) -> None:
    firn("mend", TABLE, "--file", files[0], "--yes")
    assert "(firn mend)" in firn("explain", TABLE, "--segment", files[0]).out


def test_explain_finds_a_record_that_was_taken(lake: Lake, firn: Firn, files: list[str]) -> None:
    append_file(lake, [row(3)])
    firn("mend", TABLE, "--file", files[1], "--yes")
    first = f"C36: taken by firn mend with snapshot {snapshot(lake)} at "
    explained = ("explain", TABLE, "--key", "k", "--partition", "orders-0")
    assert f"orders-0 offsets 1 to 2, 2 records, level 0, on branch firn_mended\n  {first}" in firn(*explained).out
    firn("mend", TABLE, "--file", files[0], "--yes")
    second = f"C36: taken by firn mend with snapshot {snapshot(lake)} at "
    found = firn(*explained).out
    assert first in found
    assert second in found
    told = json.loads(firn(*explained, "--json").out)
    assert [one["record"]["offset"] for one in told["mended"]] == [0, 1, 1, 2]


def test_explain_names_a_damaged_file_that_may_hold_the_key(firn: Firn, files: list[str]) -> None:
    tear(files[1])
    firn("mend", TABLE, "--file", files[1], "--yes")
    ran = firn("explain", TABLE, "--key", "k")
    assert ran.code == 0
    assert f"{files[1]} on branch firn_mended may hold records of this key, but can't be read" in ran.out


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

    def test_nothing_was(self, firn: Firn, files: list[str]) -> None:
        assert files
        assert firn("mend", TABLE, "--list").out == f"{TABLE}: nothing was mended\n"
        assert json.loads(firn("mend", TABLE, "--list", "--json").out) == []

    def test_a_lost_file_and_one_that_is_kept(self, lake: Lake, firn: Firn, files: list[str]) -> None:
        lose(files[0])
        firn("mend", TABLE, "--file", files[0], "--yes")
        lost = snapshot(lake)
        firn("mend", TABLE, "--file", files[1], "--yes")
        kept = snapshot(lake)
        listed = firn("mend", TABLE, "--list").out
        for text in (
            f"taken by firn mend with snapshot {kept} at ",
            f"  {files[1]}\n    orders-0, offsets 1 to 2, 2 records; {ON_BRANCH}\n",
            f"taken by firn mend with snapshot {lost} at ",
            f"  {files[0]}\n    orders-0, offsets 0 to 1, 2 records; lost: the store had no such file\n",
        ):
            assert text in listed, listed
        told = json.loads(firn("mend", TABLE, "--list", "--json").out)
        assert [(one["snapshot_id"], one["path"], one["outcome"]) for one in told] == [
            (kept, files[1], "kept"),
            (lost, files[0], "lost"),
        ]
        assert [(one["topic_partition"], one["base_offset"], one["last_offset"], one["records"]) for one in told] == [
            ("orders-0", 1, 2, 2),
            ("orders-0", 0, 1, 2),
        ]

    def test_after_the_branch_was_dropped_the_summary_tells(self, lake: Lake, firn: Firn, files: list[str]) -> None:
        firn("mend", TABLE, "--file", files[0], "--yes")
        lake.table(TABLE).manage_snapshots().remove_branch("firn_mended").commit()
        listed = firn("mend", TABLE, "--list").out
        assert "    orders-0, offsets 0 to 1, 2 records; no longer on branch firn_mended\n" in listed

    def test_after_the_summaries_have_expired_the_branch_tells(self, lake: Lake, firn: Firn, files: list[str]) -> None:
        for file in files:
            firn("mend", TABLE, "--file", file, "--yes")
        append_file(lake, [row(3)])
        expire_all_but_heads(lake)
        told = json.loads(firn("mend", TABLE, "--list", "--json").out)
        assert [(one["snapshot_id"], one["at"] is None, one["path"], one["outcome"]) for one in told] == [
            (None, False, files[1], "kept"),
            (None, True, files[0], "kept"),
        ]
        listed = firn("mend", TABLE, "--list").out
        assert "taken by firn mend with a snapshot that main's history no longer has at " in listed
        assert f"on branch firn_mended, but no summary tells any more when it was taken:\n  {files[0]}\n" in listed


class TestReport:
    """The data-quality page of the table tells of a mending at once, and as long as ``--list`` does."""

    def told(self, lake: Lake) -> str:
        return text_of(lake.reports_folder / page_of(TABLE))

    def test_it_tells_of_each_file(self, lake: Lake, firn: Firn, files: list[str]) -> None:
        lose(files[0])
        firn("mend", TABLE, "--file", files[0], "--yes")
        lost = snapshot(lake)
        firn("mend", TABLE, "--file", files[1], "--yes")
        told = self.told(lake)
        assert f"{snapshot(lake)} {files[1]} orders-0 1 to 2 2 {ON_BRANCH}" in told
        assert f"{lost} {files[0]} orders-0 0 to 1 2 lost: the store had no such file" in told
        assert told.index(files[0]) > told.index(files[1]), "newest first"

    def test_after_the_branch_was_dropped(self, lake: Lake, firn: Firn, files: list[str]) -> None:
        firn("mend", TABLE, "--file", files[0], "--yes")
        lake.table(TABLE).manage_snapshots().remove_branch("firn_mended").commit()
        firn("report")
        assert self.told(lake).count("no longer on branch firn_mended") == 1

    def test_after_the_summaries_have_expired_the_branch_tells(self, lake: Lake, firn: Firn, files: list[str]) -> None:
        for file in files:
            firn("mend", TABLE, "--file", file, "--yes")
        append_file(lake, [row(3)])
        expire_all_but_heads(lake)
        firn("run", TABLE, "--engine", "local")
        firn("report")
        told = self.told(lake)
        assert f"– {files[1]} orders-0 1 to 2 2 on branch firn_mended" in told
        assert f"unknown – {files[0]} orders-0 0 to 1 2 on branch firn_mended" in told

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
