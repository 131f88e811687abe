"""A worker gives memory back between two calls."""

import subprocess
import sys
from pathlib import Path

CODE = """
import gc, sys, zipfile

with zipfile.ZipFile("some.zip", "w") as archive:
    archive.writestr("first.py", "found = 1")
    archive.writestr("second.py", "found = 2")
sys.path.insert(0, "some.zip")
import first
from firnlake.engine.worker import keep_reuse_cheap

assert "some.zip" in sys.path_importer_cache
keep_reuse_cheap()
assert "some.zip" not in sys.path_importer_cache
frozen = gc.get_freeze_count()
keep_reuse_cheap()
import second
print(first.found, second.found, frozen > 0, gc.get_freeze_count() == frozen)
"""


def test_archives_are_forgotten_and_found_again_and_modules_set_aside_once(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", CODE], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert ran.stderr == ""
    assert ran.stdout == "1 2 True True\n"
