"""A process that has judged ends without a word."""

import subprocess
import sys

import pytest

JUDGES = """
import gc
gc.set_threshold(50_000, 20, 20)  # as the command firn does
{first}
import firnlake_expectations.checkpoint
import duckdb
duckdb.sql("SELECT 1").fetchall()
"""


@pytest.mark.nightly
@pytest.mark.parametrize("first", ["", "import duckdb; kept = duckdb.connect()"])
def test_a_process_that_has_loaded_great_expectations_and_duckdb_ends_without_a_word(first: str) -> None:
    command = [sys.executable, "-c", JUDGES.format(first=first)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
