"""status shows a line per table, one table in detail, and what can't be read beside what can."""

from pathlib import Path

import pytest

from firnlake.iceberg.catalog import Lake
from firnlake.job.failures import mark
from infra.foreign.files import on_disk
from tests.support import adopted, lakes
from tests.support.adopted import CDC, CDC_SCHEMA, change, make
from tests.support.explained import HOUR, dead
from tests.support.in_process import Firn
from tests.support.lakes import NOW, TABLE, append, only_plan, row

LONG = "Z" * 249


def words(line: str) -> list[str]:
    return line.split()


class TestAllTables:
    """`firn status`."""

    @pytest.fixture
    def lines(self, firn: Firn, landed: str, lake: Lake) -> list[str]:
        """Three tables: one with due work, an empty one, and one with a topic partition that can't be cleaned."""
        assert landed == TABLE
        firn("create", "lake.empty")
        firn(
            "create",
            "shop.blocked",
            "--property",
            "firn.null.keys=fail",
            "--property",
            "firn.min.compaction.lag.ms=9999999",
        )
        append(lake, [row(0, None), row(1)], "shop.blocked")
        append(lake, [row(offset, partition=1) for offset in range(3)], "shop.blocked")
        return firn("status", "--now", NOW).out.splitlines()

    def test_a_line_per_table(self, lines: list[str]) -> None:
        assert words(lines[0]) == ["table", "topic", "partitions", "segments", "bytes", "dirtiest", "state"]
        assert [words(line)[0] for line in lines[1:-1]] == ["lake.empty", "lake.records", "shop.blocked"]
        assert words(lines[1]) == ["lake.empty", "0", "0", "0", "B", "0.000", "idle"]
        assert lines[2].endswith("1.000  1 due (merge, full)")
        assert lines[3].endswith("0.000  1 waits for a person, 1 waiting")

    @pytest.mark.parametrize("columns", [60, 80, 120])
    @pytest.mark.usefixtures("lines")
    def test_it_fits_the_terminal(self, firn: Firn, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        *lines, _ = firn("status", "--now", NOW).out.splitlines()
        assert max(map(len, lines)) <= columns
        assert sum(word.startswith(("lake.", "shop.")) for word in words(" ".join(lines))) == 3

    def test_only_tables_of_records(self, firn: Firn, landed: str, lake: Lake) -> None:
        lakes.opened(lake, only_plan(lake))
        lake.catalog.create_table("lake.other", lake.table(landed).schema())
        firn("create", "second.table")
        assert [status["table"] for status in firn("status", "--json").json] == [landed, "second.table"]
        assert "\nnot adopted: lake.other (`firn adopt --help` says how)" in firn("status").out

    def test_no_tables(self, firn: Firn, tmp_path: Path, lake: Lake) -> None:
        catalog = tmp_path / ".firn" / "catalog.db"
        assert firn("status", "--json").json == []
        assert firn("status", "--check").code == 0
        out = firn("status").out
        assert (
            out
            == f"there is no catalog {catalog} yet: `firn create` makes it; FIRN_HOME chooses another lake's folder\n"
        )
        lake.create_namespace("lake")
        assert firn("status").out == f"catalog lake ({catalog}) has no table that Firn can maintain\n"


class TestOneThatCanNotBeRead:
    """It hides no other table, and the exit code tells it."""

    @pytest.fixture
    def broken(self, firn: Firn, landed: str, lake: Lake) -> str:
        assert landed == TABLE
        firn("create", "shop.broken")
        lake.set_properties("shop.broken", {"firn.merge.segments": "1"})
        return "shop.broken"

    def test_a_wrong_property(self, firn: Firn, broken: str) -> None:
        ran = firn("status")
        assert ran.code == 1
        assert "1 due (merge, full)" in ran.out
        assert f"{broken}                  –         –       –         –  can't be read, see below" in ran.out
        assert ran.err.count("\n") == 1
        assert ran.err.startswith(f"firn: table {broken}: property firn.merge.segments is '1'")

    def test_programs_read_it_too(self, firn: Firn, broken: str) -> None:
        ran = firn("status", "--json")
        assert ran.code == 1
        read, unread = ran.json
        assert (read["table"], len(read["partitions"])) == (TABLE, 1)
        assert (unread.keys(), unread["table"]) == ({"table", "error"}, broken)
        assert f"firn: {unread['error']}\n" == ran.err

    def test_a_check_fails(self, firn: Firn, broken: str, lake: Lake) -> None:
        mark(lake, only_plan(lake), "compact", "the file is torn")
        ran = firn("status", "--check", "--now", NOW)
        assert (ran.code, ran.out) == (1, "")
        assert [line.partition(": ")[2].partition(":")[0] for line in ran.err.splitlines()] == [
            f"table {broken}",
            TABLE,
        ]

    @pytest.mark.parametrize(
        ("pattern", "said"),
        [
            ("*.metadata.json", "its metadata file can't be read: "),
            ("snap-*.avro", "can't be read: "),
            ("*-m0.avro", "can't be read: "),
        ],
    )
    def test_torn_metadata(self, firn: Firn, broken: str, lake: Lake, pattern: str, said: str) -> None:
        lake.set_properties(broken, {"firn.merge.segments": "2"})
        append(lake, [row(0)], broken)
        for path in on_disk(lake.table(broken).location()).rglob(pattern):
            path.write_bytes(path.read_bytes()[:200])
        ran = firn("status")
        assert (ran.code, ran.err.count("\n")) == (1, 1)
        assert f"table {broken}" in ran.err
        assert said in ran.err
        assert TABLE in ran.out
        alone = firn("status", broken)
        assert (alone.code, alone.out, alone.err[:50]) == (1, "", ran.err[:50])

    def test_a_manifest_list_that_is_gone(self, firn: Firn, broken: str, lake: Lake) -> None:
        lake.set_properties(broken, {"firn.merge.segments": "2"})
        append(lake, [row(0)], broken)
        for path in on_disk(lake.table(broken).location()).rglob("snap-*.avro"):
            path.unlink()
        ran = firn("status")
        assert ran.code == 4
        assert f"firn: table {broken}: catalog lake: a file in use is gone: " in ran.err


class TestOneTable:
    """`firn status TABLE`."""

    def test_it_says_what_is_due_and_until_when_the_rest_waits(self, firn: Firn, landed: str, lake: Lake) -> None:
        out = firn("status", landed).out
        assert "due: merge, full" in out
        assert out.index("due: merge, full") < out.index("orders-0 merge: 2 of 2 L0 segments") < out.index(": bytes")
        with lake.table(landed).transaction() as transaction:
            transaction.set_properties({"firn.min.compaction.lag.ms": "180000", "firn.merge.segments": "3"})
        out = firn("status", landed, "--now", NOW).out
        assert "waiting; due in 2 min 59 s" in out
        assert "not cleaned until" in out

    def test_the_worst_come_first_and_the_limit_says_what_is_left_out(self, firn: Firn, lake: Lake) -> None:
        firn("create", TABLE, "--property", "firn.null.keys=fail", "--property", "firn.full.interval.ms=-1")
        for partition in range(12):
            append(lake, [row(0, partition=partition, level=3), *(row(1, partition=partition),) * (partition % 2)])
        append(lake, [row(2, None, partition=10)])
        out = firn("status", TABLE, "--limit", "3", "--now", NOW).out
        cleaning = out.partition(": cleaning\n")[2].splitlines()
        assert [words(line)[0] for line in cleaning[1:4]] == ["orders-10", "orders-1", "orders-3"]
        assert f"{TABLE}: 9 more topic partitions; --limit shows more, --json shows all" in out
        assert "more" not in firn("status", TABLE, "--limit", "12", "--now", NOW).out

    @pytest.mark.parametrize("columns", [60, 80, 120, 200, None])
    def test_a_topics_name_is_never_cut(
        self, firn: Firn, lake: Lake, monkeypatch: pytest.MonkeyPatch, columns: int | None
    ) -> None:
        firn("create", TABLE)
        append(lake, [row(offset, topic=LONG) for offset in range(2)])
        append(lake, [row(0, partition=11)])
        if columns:
            monkeypatch.setenv("COLUMNS", str(columns))
        out = firn("status", TABLE).out
        tables = out.partition(f"{LONG}-0 full: ")[0].replace("cleaned through –: nothing is cleaned yet\n", "")
        assert columns is None or max(map(len, tables.splitlines())) <= columns
        for table in tables.split(f"{TABLE}: ")[1:3]:
            assert table.count("Z") == 249
            assert "orders-11" in table

    def test_every_line_fits_80_columns(self, firn: Firn, landed: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        lines = firn("status", landed).out.splitlines()
        assert max(map(len, lines)) <= 80
        thresholds = lines.index(f"{landed}: thresholds")
        assert lines[thresholds + 1 : thresholds + 3] == [
            "  merge.segments = 2, set here",
            "  clean.segments = 32, as in WarpStream",
        ]

    def test_until_when_tombstones_are_kept(self, firn: Firn, lake: Lake) -> None:
        firn("create", TABLE)
        for offset, hours in enumerate((30, 3)):
            append(lake, [dead(offset, NOW + hours * HOUR)])
        out = firn("status", TABLE, "--now", NOW).out
        assert (
            f"{TABLE}: 2 tombstones with a delete horizon, kept until that is past; the first until 2023-11-15T01:13"
            in out
        )
        assert "Z (in 3 h)\n" in out

    def test_tombstones_by_a_condition_are_not_counted(self, firn: Firn, lake: Lake) -> None:
        make(lake, CDC, CDC_SCHEMA)
        adopted.append(lake, CDC, change(1), change(2, op="d"))
        firn("adopt", CDC, "--key", "id", "--offset", "lsn", "--tombstone", "op = 'd'")
        out = firn("status", CDC).out
        assert "tombstones –: a condition on columns says which records are tombstones, and metadata does not" in out

    def test_a_dash_is_explained(self, firn: Firn, landed: str) -> None:
        lines = firn("status", landed).out.splitlines()
        assert "cleaned through –: nothing is cleaned yet" in lines
        assert not any(line.startswith("tombstones –") for line in lines), "their number is known"

    def test_an_empty_table(self, firn: Firn) -> None:
        firn("create", TABLE)
        assert f"{TABLE}: segments: none\n{TABLE}: cleaning: none\n" in firn("status", TABLE).out
