"""The command as a whole: what it says of itself, how it refuses, what it loads."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from firnlake.iceberg.catalog import CATALOG_FILE, Lake
from firnlake.table import records
from infra.environment import CHECKOUT, SOURCES, catalog_of
from tests.support.in_process import Firn, Ran, refused
from tests.support.lakes import TABLE, append, row

COMMANDS = (
    "create", "land", "status", "checkpoint", "plan", "compact", "validate", "publish", "retain", "stages",
    "discard", "sweep", "maintain", "report", "run", "quarantine", "erase", "retry", "explain",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_subcommand_explains_itself(firn: Firn, command: str) -> None:
    ran = firn(command, "--help")
    assert ran.code == 0
    assert f"firn {command}" in ran.out


def test_without_arguments_it_lists_the_subcommands(firn: Firn) -> None:
    ran = firn()
    assert all(command in ran.out + ran.err for command in COMMANDS)


def test_c26_a_catalog_that_can_not_be_reached_is_exit_code_4(firn: Firn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__GONE__URI", "http://me:secret@127.0.0.1:1")
    monkeypatch.setenv("PYICEBERG_CATALOG__GONE__TYPE", "rest")
    ran = firn("status", "a.b")
    refused(ran, "catalog gone (127.0.0.1:1) can't be reached", code=4)
    assert "secret" not in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", TABLE, "--lane", "tiers"),
        ("nothing",),
        ("land",),
        ("explain", TABLE),
        ("explain", TABLE, "--key", "k", "--segment", "s"),
        ("explain", TABLE, "--key", "k", "--key", "l"),
        ("status", TABLE, "--limit", "0"),
    ],
)
def test_wrong_usage_is_exit_code_2(firn: Firn, arguments: tuple[str, ...]) -> None:
    assert firn(*arguments).code == 2


def test_the_installed_command_leaves_as_it_says(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("firn")
    ran = subprocess.run(
        [command, "status", "no.table"], cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, check=False
    )
    refused(Ran(ran.returncode, ran.stdout, ran.stderr), "table no.table does not exist: there is no catalog ")


def test_the_application_file_of_spark_runs_by_its_path(tmp_path: Path) -> None:
    file = CHECKOUT / "pipeline" / "firnlake" / "__main__.py"
    ran = subprocess.run(
        [sys.executable, file, "status", "no.table"],
        cwd=tmp_path,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
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
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": SOURCES, "HOME": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("status",),
        ("status", TABLE),
        ("checkpoint", TABLE),
        ("plan", TABLE),
        ("run", TABLE, "--dry-run"),
        ("stages", TABLE),
        ("verify", TABLE),
        ("quarantine", TABLE),
        ("explain", TABLE, "orders-0"),
        ("erase", TABLE, "--status"),
        ("maintain", TABLE, "--dry-run"),
        ("land", TABLE, "part.jsonl"),
    ],
)
def test_what_reads_makes_nothing_in_a_folder_without_a_lake(
    firn: Firn, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    ran = firn(*arguments)
    if len(arguments) > 1:
        assert ran.code == 1
        assert (
            f"table {TABLE} does not exist: there is no catalog {tmp_path / '.firn' / CATALOG_FILE}; allowed:"
            in ran.err
        )
    assert list(tmp_path.iterdir()) == []


def test_what_reads_another_catalog_makes_nothing_either(
    firn: Firn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Lake.embedded(tmp_path / "elsewhere")
    records.create(other, TABLE, {})
    append(other, [row(0)])
    for name, value in catalog_of(other).items():
        monkeypatch.setenv(name, value)
    for arguments in (
        ("status",),
        ("status", TABLE),
        ("plan", TABLE, "--lane", "merge"),
        ("explain", TABLE, "orders-0"),
    ):
        assert firn(*arguments).code == 0
    assert list(tmp_path.iterdir()) == [other.home]


def test_it_tells_its_version(firn: Firn) -> None:
    assert firn("--version").out == f"firn {metadata.version('firnlake')}\n"


@pytest.mark.parametrize(("words", "offered"), [("firn ver", "verify"), ("firn run --un", "--until-idle")])
def test_the_shell_completes_commands_and_options(tmp_path: Path, words: str, offered: str) -> None:
    command = Path(sys.executable).with_name("firn")
    asked = {"_FIRN_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    ran = subprocess.run(
        [command], env={**os.environ, **asked}, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert offered in ran.stdout.splitlines()
