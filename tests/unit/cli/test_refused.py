"""A refusal is said once, and on a narrow terminal with cause, files and the next command on lines of their own."""

import shlex

import pytest
from pyiceberg.expressions import EqualTo, Reference
from pyiceberg.expressions.literals import literal

from firnlake.iceberg.catalog import Lake
from tests.support.in_process import Firn, Ran
from tests.support.lakes import NOW, TABLE, append_file, offsets, row
from tests.support.mending import lose, tear

RUN = ("run", TABLE, "--engine", "local", "--now", NOW, "--lane", "full")
COLUMNS = 80


@pytest.fixture
def files(firn: Firn, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two segments of orders-0, of which lanes `merge` and `full` are due, on a narrow terminal."""
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    firn("create", TABLE, "--property", "firn.merge.segments=2")
    return [append_file(lake, rows) for rows in ([row(0), row(1)], [row(1), row(2)])]


def told(text: str) -> list[str]:
    """The lines of a message, without their indents."""
    return [line.strip() for line in text.splitlines()]


def mending(firn: Firn, text: str) -> Ran:
    """The outcome of the mending that a message names, copied to the end of its line."""
    (command,) = {line.partition(": firn mend ")[2] for line in told(text) if ": firn mend " in line}
    return firn("mend", *shlex.split(command))


def test_a_torn_file_is_said_once_by_each_run(firn: Firn, files: list[str]) -> None:
    tear(files[0])
    first, second = firn(*RUN), firn(*RUN)
    assert (first.code, second.code) == (1, 6)
    for ran in (first, second):
        lines = told(ran.err)
        assert sum("is not readable as Parquet: " in line for line in lines) == 1, ran.err
        assert lines.count(f"the segment is {files[0]}") == 1
        assert "allowed: a complete Parquet file with a record count of 2" in lines
    assert first.err.startswith(
        "firn: orders-0 full: table lake.records, orders-0: a segment is not readable as Parquet: "
    )
    assert second.err.startswith(f"firn: {TABLE}: 1 of 1 topic partition waits for a person: orders-0 full waits: ")
    for text in (first.err, second.err, firn("status", TABLE).out, firn("status", "--check").err):
        assert "offsets 0 to 1: 2 records" in mending(firn, text).out


def test_two_lanes_that_failed_for_one_reason_say_it_together(firn: Firn, files: list[str]) -> None:
    tear(files[0])
    assert firn(*RUN).code == 1
    assert firn(*RUN[:-2]).code == 1, "what `full` does not take is left to `merge`"
    (line,) = (line for line in told(firn("status", TABLE).out) if "its plan" in line or "their plans" in line)
    assert line.startswith("orders-0 merge, full wait: their plans failed in compact at ")
    assert sum("is not readable as Parquet" in line for line in told(firn("status", TABLE).out)) == 1
    outlook = told(firn("explain", TABLE, "orders-0").out)
    assert [line.partition(": its plan")[0] for line in outlook if "C20" in line] == [
        "merge: blocked, C20: orders-0 merge waits",
        "full: blocked, C20: orders-0 full waits",
    ]


def test_different_records_name_each_file_and_the_offset(firn: Firn, lake: Lake, files: list[str]) -> None:
    files.append(append_file(lake, [row(2, value=b"other")]))
    for code in (1, 6):
        ran = firn(*RUN)
        assert ran.code == code
        lines = told(ran.err)
        assert [line for line in lines if line.endswith(tuple(files))] == [
            f"the records are in {files[1]}",
            f"and in {files[2]}",
        ]
        assert sum("holds different records" in line for line in lines) == 1
        assert sum(line.endswith(" AND partition = 0 AND offset = 2 AND <the wrong value>") for line in lines) == 1


def test_a_lost_file_is_named_with_what_to_do(firn: Firn, files: list[str]) -> None:
    lose(files[0])
    ran = firn(*RUN)
    assert ran.code == 4
    assert told(ran.err)[1:3] == [f"the segment is {files[0]}", "try again, because the table may have changed"]
    assert "lost: the store has no such file" in mending(firn, ran.err).out


def test_another_topic_partition_that_waits_is_told_as_well(firn: Firn, lake: Lake, files: list[str]) -> None:
    tear(files[0])
    assert firn(*RUN).code == 1
    lost = append_file(lake, [row(0, partition=1)])
    append_file(lake, [row(1, partition=1)])
    lose(lost)
    ran = firn(*RUN)
    assert ran.code == 4
    lost, waiting = (line for line in ran.err.splitlines() if line.startswith("firn: "))
    assert lost == "firn: orders-1 full: table lake.records, orders-1: a segment is gone"
    assert waiting.startswith(
        f"firn: {TABLE}: 1 of 2 topic partitions waits for a person: orders-0 full waits: its plan"
    )


def test_after_the_wrong_record_is_deleted_a_run_works_without_a_retry(
    firn: Firn, lake: Lake, files: list[str]
) -> None:
    files.append(append_file(lake, [row(2, value=b"other"), row(3)]))
    assert firn(*RUN).code == 1
    assert firn("status", TABLE, "--check").code == 6
    lake.table(TABLE).delete(EqualTo(term=Reference("value"), value=literal(b"other")))
    assert firn("status", TABLE, "--check").code == 0
    assert firn(*RUN, "--force").code == 0
    assert offsets(lake) == [3]
    assert firn("verify", TABLE).code == 0


def test_after_a_mending_a_run_works_without_a_retry(firn: Firn, files: list[str]) -> None:
    tear(files[0])
    assert firn(*RUN).code == 1
    *_, note, last = firn("mend", TABLE, "--file", files[0], "--yes").out.splitlines()
    assert note.startswith("no `firn retry` is needed")
    command = last.removeprefix("next: ")
    assert firn(*shlex.split(command)[1:], "--engine", "local", "--now", NOW).code == 0
    assert firn("status", TABLE, "--check").code == 0
