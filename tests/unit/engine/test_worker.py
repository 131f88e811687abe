"""A worker that can't be used says so itself, in one line: the function that reaches it needs no Firn."""

import subprocess
import sys
from importlib.metadata import version

import pyarrow as pa

from firnlake.engine.engine import pickled
from firnlake.engine.spark import entry_of
from firnlake.engine.worker import complaint

WITHOUT_FIRN = """
import pickle, sys
import pyarrow as pa

sys.modules["firnlake"] = None  # as if it was not installed
run = pickle.load(sys.stdin.buffer)
try:
    list(run([pa.record_batch({"id": [0]})]))
except RuntimeError as error:
    print(error)
"""


def test_a_worker_without_firn_says_so() -> None:
    entry = entry_of("0.1.0", "run_map", pickled(abs), {0: pickled(-1)}, [[0]])

    ran = subprocess.run([sys.executable, "-c", WITHOUT_FIRN], input=pickled(entry), capture_output=True, check=False)

    assert ran.stderr.decode() == ""
    assert ran.stdout.decode().startswith("This worker can't run Firn: Firn is not installed there (")


def test_a_worker_with_the_drivers_firn_works() -> None:
    entry = entry_of(version("firnlake"), "run_map", pickled(abs), {0: pickled(-1), 1: pickled(-2)}, [[0, 1]])

    (batch,) = entry([pa.record_batch({"id": [0]})])

    assert batch["task"].to_pylist() == [0, 1]


def test_a_worker_of_another_firn_names_both() -> None:
    assert complaint("0.0.1") == f"it has Firn {version('firnlake')}, the driver has Firn 0.0.1"
    assert complaint(version("firnlake")) is None
