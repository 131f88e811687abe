"""The command as a whole: what it says of itself, what it loads and leaves alone, how it fills a terminal and asks."""

import io
import os
import subprocess
import sys
from functools import partial
from importlib import metadata
from itertools import product
from pathlib import Path

import pytest

from infra.environment import CHECKOUT, SOURCES
from tests.support.commands import Firn, Ran, command, refused
from tests.support.scenario import Scenario

COMMANDS = (
    "create", "adopt", "release", "config", "land", "status", "checkpoint", "plan", "maintain", "report",
    "run", "quarantine", "erase", "retry", "explain", "mend", "verify",
)  # fmt: skip
READING = (
    "status", "status a.b", "checkpoint a.b", "plan a.b", "verify a.b",
    "quarantine a.b", "explain a.b orders-0", "erase a.b --status", "maintain a.b --dry-run", "land a.b part.jsonl",
)  # fmt: skip
LONG = "Z" * 249
COMMAND = str(Path(sys.executable).with_name("firn"))


@pytest.fixture
def firn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Firn:
    """The command in an empty folder, for a person who has configured nothing."""
    for name in ("HOME", "PYICEBERG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return command


@pytest.fixture
def on_lake(scenario: Scenario) -> Firn:
    """The command on the lake of ``scenario``, which is its own."""
    scenario.answer("alone")
    return partial(command, lake=scenario.opened.lake)


def test_every_command_explains_itself_in_a_line_and_by_its_help(firn: Firn) -> None:
    listed = firn()
    for name in COMMANDS:
        ran = firn(name, "--help")
        assert (ran.code, f"firn {name}" in ran.out) == (0, True)
        assert f" {name} " in listed.out + listed.err
    assert firn("--version").out == f"firn {metadata.version('firnlake')}\n"


@pytest.mark.parametrize(
    "arguments",
    ["plan a.b --lane tiers", "nothing", "land", "explain a.b", "explain a.b --key k --segment s", "erase a.b",
     "explain a.b --key k --key l", "status a.b --limit 0", "erase a.b --key k --keys f"],
)  # fmt: skip
def test_wrong_usage_is_exit_code_2(firn: Firn, arguments: str) -> None:
    assert firn(*arguments.split()).code == 2


@pytest.mark.parametrize("arguments", READING)
def test_what_reads_makes_nothing_in_a_folder_without_a_lake(firn: Firn, tmp_path: Path, arguments: str) -> None:
    ran = firn(*arguments.split())
    if " " in arguments:
        said = f"table a.b does not exist: there is no catalog {tmp_path / '.firn' / 'catalog.db'}; allowed:"
        assert (ran.code, said in ran.err) == (1, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "start",
    [
        [str(Path(sys.executable).with_name("firn"))],
        pytest.param([sys.executable, f"{CHECKOUT}/pipeline/firnlake/__main__.py"], marks=pytest.mark.nightly),
    ],
)
def test_the_installed_command_and_the_file_for_spark_leave_as_they_say(tmp_path: Path, start: list[str]) -> None:
    ran = subprocess.run(
        [*start, "status", "no.table"], cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, check=False
    )
    refused(Ran(ran.returncode, ran.stdout, ran.stderr), "table no.table does not exist: there is no catalog ")


def test_metadata_commands_start_no_jvm_and_load_neither_spark_nor_great_expectations(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from firnlake.cli.main import main\n"
        "sys.argv = ['firn', 'status']\n"
        "try:\n    main()\nexcept SystemExit as left:\n    assert not left.code\n"
        "heavy = {'pyspark', 'great_expectations', 'airflow'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    alone = {"PYTHONPATH": SOURCES, "HOME": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=alone, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("words", "offered"),
    [("firn ver", "verify"), pytest.param("firn run --un", "--until-idle", marks=pytest.mark.nightly)],
)
def test_the_shell_completes_commands_and_options(tmp_path: Path, words: str, offered: str) -> None:
    asked = {"_FIRN_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    ran = subprocess.run(
        [COMMAND], env={**os.environ, **asked}, cwd=tmp_path, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    assert offered in ran.stdout.splitlines()


def test_tables_fit_the_terminal_and_no_name_is_cut(
    scenario: Scenario, on_lake: Firn, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario.answer(f"land {LONG}:a=1 {LONG}:a=2 11/a=1 | 11/a=2")
    commands = (["status"], ["status", scenario.name], ["plan", scenario.name], ["config", scenario.name])
    for columns, arguments in product((None, 80, 120, 200), commands):
        if columns:
            monkeypatch.setenv("COLUMNS", str(columns))
        ran = on_lake(*arguments)
        assert ran.code == 0
        lines = [line for line in ran.out.splitlines() if "cleaned through" not in line and "-0 full" not in line]
        assert columns is None or max(map(len, lines)) <= columns, arguments
        if arguments[-1] == scenario.name and arguments[0] != "config":
            assert "".join(ran.out.split()).count(LONG) >= 1 or "".join(lines).count("Z") >= len(LONG)
            assert "orders-11" in ran.out


def test_a_message_breaks_at_its_clauses_on_a_narrow_terminal_and_is_said_once(
    scenario: Scenario, on_lake: Firn, monkeypatch: pytest.MonkeyPatch
) -> None:
    for line in ("land a=1 b=1", "files", "tear 0"):
        scenario.answer(line)
    monkeypatch.setenv("COLUMNS", "80")
    first, *rest = on_lake("run", scenario.name, "--force", "--now", scenario.now).err.splitlines()
    assert first.startswith("firn: orders-0 full: table db.orders, orders-0: a segment is not readable as Parquet")
    assert rest[0].startswith("  ")
    assert sum(line.startswith("  the segment is file:") for line in rest) == 1
    monkeypatch.delenv("COLUMNS")
    assert on_lake("run", scenario.name, "--now", scenario.now).err.count("\n") == 1


def test_c5_clearing_asks_without_yes(scenario: Scenario, on_lake: Firn, monkeypatch: pytest.MonkeyPatch) -> None:
    for line in ("land -=lost a=1", "full!"):
        scenario.answer(line)
    head = scenario.loaded().metadata.refs["firn_quarantine"].snapshot_id
    for answer, code, left in (("n", 1, "-=lost@0"), ("", 1, "-=lost@0"), ("y", 0, "no record")):
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{answer}\n" if answer else ""))
        ran = on_lake("quarantine", scenario.name, "--clear", "--as-of", head)
        assert (ran.code, "remove 1 record from quarantine?" in ran.out) == (code, True)
        assert scenario.answer("read quarantined") == [left]
