"""The package that is built from the checkout: what is in it, what it says of itself, and what it asks pip for; and the
lock files of the jars that tests need.
"""

import re
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from infra.environment import CHECKOUT
from infra.setup.constraints import CONSTRAINTS, LOCK, constraints
from infra.setup.jars import Jar, JarError, ivy_file, read_lock

Files = dict[str, bytes]
SHA = "0" * 64


def contents(source: Path, folder: Path) -> Files:
    """The files of the wheel that is built of the sources, by name."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def of_metadata(files: Files, name: str) -> bytes:
    """A file of the wheel's folder of metadata, whose name has the version."""
    return next(content for path, content in files.items() if path.endswith(f".dist-info/{name}"))


def metadata(files: Files) -> Message:
    """The metadata of a wheel."""
    return Parser().parsestr(of_metadata(files, "METADATA").decode())


def wrong(files: Files) -> list[str]:
    """One line for each thing that is wrong with a wheel."""
    of = metadata(files)
    changelog, readme = ((CHECKOUT / name).read_text() for name in ("CHANGELOG.md", "README.md"))
    packages = {path.partition("/")[0] for path in files if ".dist-info/" not in path}
    expected = {
        "the changelog's newest version": (changelog.partition("\n## [")[2].partition("]")[0], of["Version"]),
        "the top-level names": ({"firnlake", "firnlake_expectations"}, packages),
        "the licence": ("Apache-2.0", of["License-Expression"]),
        "the licence's text": ((CHECKOUT / "LICENSE").read_bytes(), of_metadata(files, "licenses/LICENSE")),
        "the description": (readme.strip(), str(of.get_payload()).strip()),
        "the extras": ({"airflow", "spark"}, set(of.get_all("Provides-Extra", []))),
    }
    return [f"{what}: expected {want!r}, found {found!r}" for what, (want, found) in expected.items() if want != found]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The files of the wheel."""
    return contents(CHECKOUT, tmp_path_factory.mktemp("dist"))


def test_the_wheel_is_fit_for_a_release(files: Files) -> None:
    assert wrong(files) == []


def test_the_command_and_airflows_plugin_are_its_entry_points(files: Files) -> None:
    said = of_metadata(files, "entry_points.txt").decode()
    assert "firn = firnlake.cli.main:main" in said
    assert "firn = firnlake.airflow.plugin:FirnPlugin" in said


def test_pyspark_and_airflow_come_by_their_extras_alone(files: Files) -> None:
    asked = metadata(files).get_all("Requires-Dist", [])
    assert not [line for line in asked if re.match("pyspark|py4j|apache-airflow", line) and "extra ==" not in line]
    assert not [line for line in asked if "apache-spark" in line]


def test_every_dependency_has_bounds_but_the_one_that_is_numbered_by_date(files: Files) -> None:
    asked = metadata(files).get_all("Requires-Dist", [])
    assert [line for line in asked if not re.search(r"<[\d.]+,>=[\d.]+($|;)", line)] == ["fsspec"]


@pytest.mark.parametrize(
    ("file", "content", "what"),
    [
        ("pipeline/__init__.py", b"", "the top-level names"),
        ("METADATA", b"Version: 0.0.1\n", "the changelog's newest version"),
        ("licenses/LICENSE", b"All rights reserved\n", "the licence's text"),
    ],
)
def test_a_wheel_that_is_not_is_told(files: Files, file: str, content: bytes, what: str) -> None:
    name = next((path for path in files if path.endswith(f".dist-info/{file}")), file)
    assert what in [line.partition(":")[0] for line in wrong({**files, name: content})]


def test_the_constraints_that_ship_are_those_of_the_lock(files: Files) -> None:
    assert CONSTRAINTS.read_text() == constraints(LOCK.read_text())
    assert files["firnlake/airflow/constraints.txt"] == CONSTRAINTS.read_bytes()


def test_the_constraints_hold_what_users_install_and_no_tools_of_development() -> None:
    names = {re.split("[= ]", line)[0] for line in CONSTRAINTS.read_text().splitlines()}
    assert {"apache-airflow", "apache-airflow-task-sdk", "pyspark", "grpcio", "pyiceberg", "scipy"} <= names
    assert not {"pytest", "ruff", "mypy", "hypothesis", "polars", "pyspark-client"} & names


def test_a_package_that_only_a_dropped_one_needs_is_dropped() -> None:
    lock = """\
direct==1.0 \\
    --hash=sha256:0
    # via firnlake (pyproject.toml)
tool==2.0 \\
    --hash=sha256:1
    # via firnlake (pyproject.toml:dev)
of-both==3.0 ; python_full_version < '3.12' \\
    --hash=sha256:2
    # via
    #   direct
    #   tool
of-the-tool==4.0 \\
    --hash=sha256:3
    # via tool
"""
    assert constraints(lock).splitlines()[1:] == ["direct==1.0", "of-both==3.0 ; python_full_version < '3.12'"]


def test_the_files_for_the_dags_folder_are_some_that_airflow_parses() -> None:
    """Airflow reads only files that hold both words, in whatever case."""
    for file in (CHECKOUT / "dags").glob("*.py"):
        text = file.read_text().lower()
        assert "dag" in text
        assert "airflow" in text


def test_a_line_may_have_a_classifier(tmp_path: Path) -> None:
    lock = tmp_path / "jars.lock"
    lock.write_text(f"# why\n\na.b:c:1.0 {SHA}\na.b:c:1.0:tests {SHA}\n")
    assert read_lock(lock) == [Jar("a.b", "c", "1.0", "", SHA), Jar("a.b", "c", "1.0", "tests", SHA)]
    assert [jar.name for jar in read_lock(lock)] == ["c-1.0.jar", "c-1.0-tests.jar"]


@pytest.mark.parametrize("line", [f"a.b:c {SHA}", f"a:b:c:d:e {SHA}", "a:b:c", "one"])
def test_c26_another_line_is_refused(tmp_path: Path, line: str) -> None:
    lock = tmp_path / "jars.lock"
    lock.write_text(f"{line}\n")
    with pytest.raises(JarError, match=r"jars\.lock:1: expected 'group:artifact:version\[:classifier\] sha256', found"):
        read_lock(lock)


def test_two_versions_of_a_module_are_both_asked_for() -> None:
    """As a server whose tests are of an older version than its libraries: Ivy would leave the older out."""
    asked = ivy_file([Jar("g", "a", "1", "tests", SHA), Jar("g", "a", "2", "", SHA)])
    assert [one.get("rev") for one in ElementTree.fromstring(asked).iter("dependency")] == ["1", "2"]  # noqa: S314
    assert '<conflict manager="all"' in asked


def test_the_locks_can_be_read_and_name_each_jar_once() -> None:
    for folder in ("infra/stack", "tests/support", "tests/conformance"):
        lock = CHECKOUT / folder / "jars.lock"
        names = [jar.name for jar in read_lock(lock)]
        assert names
        assert len(set(names)) == len(names)
