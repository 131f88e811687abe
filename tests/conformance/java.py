"""Java programs around Kafka's released jars, compiled on the way: a Java runtime without javac is enough."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
JARS = ROOT / ".cache" / "kafka-jars"


class DriverError(Exception):
    """Java, the jars or the driver did not do what they should."""


def run(driver: Path, scratch: Path, options: Sequence[str] = (), arguments: Sequence[str] = (), text: str = "") -> str:
    """The output of the class in the source file ``driver``, given ``text`` on standard input.

    ``options`` are the JVM's. ``scratch`` gets the compiled class and may be used again.
    """
    classes = _compiled(driver, scratch)
    path = os.pathsep.join([*_class_path(), str(classes)])
    return _java([*options, "-cp", path, driver.stem, *arguments], text)


def _compiled(driver: Path, scratch: Path) -> Path:
    """Compile with the Eclipse compiler, a jar like the others; once for the same source."""
    classes = scratch / "classes"
    compiled = classes / f"{driver.stem}.class"
    if not compiled.exists() or compiled.stat().st_mtime < driver.stat().st_mtime:
        (compiler,) = _jars("ecj-*.jar")
        level = ["-source", "17", "-target", "17", "-proc:none"]
        path = os.pathsep.join(_class_path())
        _java(["-jar", str(compiler), *level, "-cp", path, "-d", str(classes), str(driver)], "")
    return classes


def _class_path() -> list[str]:
    return [str(jar) for jar in _jars("*.jar") if not jar.name.startswith("ecj-")]


def _jars(pattern: str) -> list[Path]:
    found = sorted(JARS.glob(pattern))
    if not found:
        raise DriverError(
            f"no {pattern} in {JARS}; `make test`, `make conformance` and `make bench` fetch Kafka's jars there"
        )
    return found


def _java(arguments: Sequence[str], text: str) -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    done = subprocess.run([java, *arguments], input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DriverError(f"java ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout
