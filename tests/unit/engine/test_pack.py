"""The archive for Spark's executors: what is in it, and that it suffices for what runs on a worker."""

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from firnlake.engine.engine import identity
from firnlake.engine.pack import Archive, pack
from firnlake.errors import RefusedError
from infra.environment import CHECKOUT

IMPORTED = """
import importlib, json, pkgutil, sys

packed = set(json.loads(sys.argv[1]))

class Packed:
    def find_spec(name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in packed | sys.stdlib_module_names and not top.startswith("_sysconfigdata"):
            raise ModuleNotFoundError(f"{name} is not packed")

sys.meta_path.insert(0, Packed)
for package in map(importlib.import_module, ("firnlake.compact", "firnlake.iceberg", "firnlake.table")):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
for name in ("firnlake.lanes.erasure.search", "firnlake.validate.tasks", "firnlake_expectations.judge"):
    importlib.import_module(name)
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    """With a package that nothing requires."""
    made = pack(tmp_path_factory.mktemp("pack") / "firn.zip", ["PsUtil"], level=0)
    yield made
    made.path.unlink()  # large, and pytest keeps its folders


@pytest.fixture(scope="module")
def names(archive: Archive) -> list[str]:
    return zipfile.ZipFile(archive.path).namelist()


def test_it_has_few_packages_and_none_that_only_the_driver_needs(archive: Archive) -> None:
    assert {"firnlake", "duckdb", "numpy", "pyarrow", "pyiceberg", "pydantic", "requests"} <= archive.packages.keys()
    unwanted = {"great-expectations", "jinja2", "pandas", "pyspark", "rich", "sqlalchemy", "typer", "aiokafka"}
    assert not unwanted & archive.packages.keys()
    assert len(archive.packages.keys() - {"psutil"}) == 25
    assert archive.bytes == archive.path.stat().st_size


def test_it_has_their_files_and_metadata_but_no_compiled_code(archive: Archive, names: list[str]) -> None:
    for path in ("firnlake/engine/worker.py", "firnlake_expectations/judge.py", "pyarrow/__init__.py"):
        assert path in names
    metadata = {name.partition("-")[0] for name in names if name.endswith(".dist-info/METADATA")}
    assert metadata == {name.replace("-", "_") for name in archive.packages}
    assert not [name for name in names if "__pycache__" in name or name.startswith(("/", ".."))]


def test_the_same_installation_makes_the_same_archive(archive: Archive) -> None:
    members = zipfile.ZipFile(archive.path).infolist()
    assert {member.date_time for member in members} == {(1980, 1, 1, 0, 0, 0)}
    assert [member.filename for member in members[1:]] == sorted(member.filename for member in members[1:])


def test_it_says_what_it_is_good_for(archive: Archive) -> None:
    about = json.loads(zipfile.ZipFile(archive.path).read("firn-spark.json"))
    assert about["packages"]["firnlake"] == identity()
    assert about["python"] == "{}.{}".format(*sys.version_info)
    assert about["platform"].startswith("linux")


def test_what_runs_on_a_worker_imports_nothing_else(names: list[str]) -> None:
    packed = sorted({name.partition("/")[0].partition(".")[0] for name in names})
    ran = subprocess.run(
        [sys.executable, "-c", IMPORTED, json.dumps(packed)], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_an_installed_package_can_be_added(archive: Archive, names: list[str], tmp_path: Path) -> None:
    assert "psutil" in archive.packages
    assert "psutil/__init__.py" in names
    with pytest.raises(RefusedError, match="package no-such is not installed here"):
        pack(tmp_path / "firn.zip", ["no-such"])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("firn.tar.gz", "is not the name of an archive; allowed: a path that ends with .zip"),
        ("no such folder/firn.zip", "can't be written: No such file or directory"),
    ],
)
def test_c26_a_path_that_cannot_be_an_archive_is_refused(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(RefusedError, match=said):
        pack(tmp_path / name, level=0)
    assert not list(tmp_path.iterdir())
