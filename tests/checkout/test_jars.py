"""Lock files of jars: what a line means, and what Ivy is asked for."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from infra.environment import CHECKOUT
from infra.setup.jars import Jar, JarError, ivy_file, read_lock

SHA = "0" * 64


def test_a_line_may_have_a_classifier(tmp_path: Path) -> None:
    lock = tmp_path / "jars.lock"
    lock.write_text(f"# why\n\na.b:c:1.0 {SHA}\na.b:c:1.0:tests {SHA}\n")
    assert read_lock(lock) == [Jar("a.b", "c", "1.0", "", SHA), Jar("a.b", "c", "1.0", "tests", SHA)]
    assert [jar.name for jar in read_lock(lock)] == ["c-1.0.jar", "c-1.0-tests.jar"]
    assert [jar.coordinates for jar in read_lock(lock)] == ["a.b:c:1.0", "a.b:c:1.0:tests"]


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
