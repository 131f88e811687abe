"""`firn spark pack`: what it prints can be pasted into firn.toml."""

import tomllib
from pathlib import Path

import pytest

from tests.support.in_process import Firn, refused


@pytest.fixture(autouse=True)
def few_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small archive, because tests of the engine look at the whole one."""
    monkeypatch.setattr("firnlake.engine.pack.ROOTS", ("tenacity",))


def test_it_prints_what_is_packed_and_the_line_that_uses_it(firn: Firn, tmp_path: Path) -> None:
    path = tmp_path / "firn.zip"
    ran = firn("spark", "pack", path, "--with", "certifi")
    assert (ran.code, ran.err) == (0, "")
    content, explained, line = ran.out.splitlines()
    assert content.startswith(f"{path}: {path.stat().st_size:,} bytes, 3 packages: firnlake 0.1.0+")
    assert [one.split()[0] for one in content.split(", ")[-2:]] == ["certifi", "tenacity"]
    assert "firn.toml" in explained
    settings = tomllib.loads(line)["spark"]
    assert settings["spark.archives"] == f"{path}#firn"
    assert settings["spark.executorEnv.PYTHONPATH"] == "firn:../firn"
    assert settings["spark.sql.execution.pyspark.python"].startswith("python3.")


def test_c26_a_path_that_cannot_be_written_is_refused(firn: Firn, tmp_path: Path) -> None:
    refused(firn("spark", "pack", tmp_path / "none" / "firn.zip"), "can't be written: No such file or directory")
