"""The option --engine, and what the table of subcommands says."""

import pytest

from firnlake.cli.main import COMMANDS


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_subcommand_is_there_and_told_in_one_line(name: str) -> None:
    assert callable(COMMANDS[name].function(name))
    assert COMMANDS[name].help.endswith(".")
    assert len(COMMANDS[name].help) < 100
