"""Java programs of the stack, compiled on the way: a Java runtime without javac is enough."""

import os
import subprocess
from pathlib import Path

from infra.processes import CHECKOUT

JARS = CHECKOUT / ".cache" / "stack-jars"
LIGHT = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:disable")
"""Options of a JVM that serves a few requests: small, and soon up."""


def program() -> str:
    """Java itself: that of JAVA_HOME, else of the PATH."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def jar(pattern: str) -> Path:
    """The one jar of the stack with such a name."""
    jars = sorted(JARS.glob(pattern))
    if len(jars) != 1:
        raise SystemExit(f"firn: {len(jars)} jars {pattern} in {JARS}; allowed: one, as `make stack-up` fetches it")
    return jars[0]


def compiled(source: Path, folder: Path) -> str:
    """Compile the class in ``source`` into ``folder`` with the Eclipse compiler; the class path that it runs with."""
    # A jar with all its dependencies in it would shadow those of others.
    path = os.pathsep.join(
        str(one) for one in sorted(JARS.glob("*.jar")) if not one.name.startswith(("ecj", "s3proxy"))
    )
    level = ["-source", "17", "-target", "17", "-proc:none"]
    command = [program(), "-jar", str(jar("ecj-*.jar")), *level, "-cp", path, "-d", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"firn: {source} does not compile:\n{done.stdout}{done.stderr}")
    return os.pathsep.join([path, str(folder)])
