"""Java programs around released jars, compiled on the way: a Java runtime without javac is enough."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from infra.environment import CHECKOUT

KAFKA_JARS = CHECKOUT / ".cache" / "kafka-jars"
STACK_JARS = CHECKOUT / ".cache" / "stack-jars"


class JavaError(Exception):
    """Java, the jars or the program did not do what they should."""


def program() -> str:
    """Java itself: that of JAVA_HOME, else of the PATH."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def jar(folder: Path, pattern: str) -> Path:
    """The one jar in ``folder`` with such a name."""
    jars = sorted(folder.glob(pattern))
    if len(jars) != 1:
        raise JavaError(f"{len(jars)} jars {pattern} in {folder}; allowed: one, as the target of make fetches it")
    return jars[0]


def compiled(source: Path, classes: Path, jars: Path) -> str:
    """Compile the class in ``source`` into ``classes``, once for the same source; the class path that it runs with."""
    # A jar with all its dependencies in it would shadow those of others.
    others = [one for one in sorted(jars.glob("*.jar")) if not one.name.startswith(("ecj-", "s3proxy-"))]
    path = os.pathsep.join(map(str, others))
    target = classes / f"{source.stem}.class"
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        level = ["-source", "17", "-target", "17", "-proc:none"]
        run(["-jar", str(jar(jars, "ecj-*.jar")), *level, "-cp", path, "-d", str(classes), str(source)])
    return os.pathsep.join([path, str(classes)])


def run(arguments: Sequence[str], text: str = "") -> str:
    """The output of a JVM with these arguments, given ``text`` on standard input."""
    done = subprocess.run([program(), *arguments], input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise JavaError(f"java ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout
