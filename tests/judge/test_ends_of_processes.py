"""A process that has judged ends at once, and without a word."""

import os
import subprocess
import sys

import pytest

JUDGES = """
import gc, sys, time
gc.set_threshold(50_000, 20, 20)  # as the command firn does
{first}
import firnlake_expectations.checkpoint as judge
assert "great_expectations" in sys.modules
import duckdb
duckdb.sql("SELECT 1").fetchall()
print(time.process_time())
"""


def ended(first: str) -> tuple[float, str]:
    """The CPU seconds that the interpreter takes to end after the last statement, and what it says."""
    command = [sys.executable, "-c", JUDGES.format(first=first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stderr
        before, said = process.stdout.read(), process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, said
    return used.ru_utime + used.ru_stime - float(before), said


def test_a_process_ends_at_once_after_great_expectations_was_loaded() -> None:
    seconds, said = ended("")
    assert said == ""
    assert seconds < 0.4


@pytest.mark.nightly
def test_a_process_that_has_loaded_duckdb_before_ends_without_a_word() -> None:
    _, said = ended("import duckdb; kept = duckdb.connect()")
    assert said == ""
