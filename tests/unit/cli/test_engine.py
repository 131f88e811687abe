"""The option --engine, and what the table of subcommands says."""

import pytest

from firnlake.cli.main import COMMANDS
from firnlake.iceberg.catalog import Lake
from firnlake.table import records
from tests.support.in_process import Firn, refused
from tests.support.lakes import TABLE


@pytest.mark.parametrize("arguments", [("validate", "stage"), ("run", TABLE)])
def test_c26_an_engine_that_does_not_exist_is_refused(firn: Firn, lake: Lake, arguments: tuple[str, ...]) -> None:
    records.create(lake, TABLE, {})
    refused(firn(*arguments, "--engine", "flink"), "engine 'flink'; allowed: spark, local, auto")


def test_c26_so_is_one_from_the_environment(firn: Firn, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    records.create(lake, TABLE, {})
    monkeypatch.setenv("FIRN_ENGINE", "flink")
    refused(firn("run", TABLE), "engine 'flink'; allowed: spark, local, auto")


@pytest.mark.parametrize("engine", ["spark", "local", "auto"])
def test_a_run_with_nothing_to_do_starts_no_engine(firn: Firn, lake: Lake, engine: str) -> None:
    records.create(lake, TABLE, {})
    ran = firn("run", TABLE, "--engine", engine)
    assert ran.code == 0, ran.err
    assert "Spark application" not in ran.out


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_subcommand_is_there_and_told_in_one_line(name: str) -> None:
    assert callable(COMMANDS[name].function(name))
    assert COMMANDS[name].help.endswith(".")
    assert len(COMMANDS[name].help) < 100
