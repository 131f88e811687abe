"""Fetch the jars named in a lock file, once, and check each against its SHA-256.

Only the standard library and Java are needed: the resolver is the Ivy that Spark ships for
`spark.jars.packages`, so a mirror is configured in the way a Spark user knows: an Ivy settings file, named
by the variable FIRN_IVY_SETTINGS. A jar that is there already with the right checksum costs one read; a
wrong one is refused and nothing is kept of it.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

MAVEN = "http://ant.apache.org/ivy/maven"
"""The XML namespace in which Ivy knows what only Maven has: classifiers."""


class JarError(Exception):
    """A jar could not be had, or is not the one that was locked."""


@dataclass(frozen=True)
class Jar:
    """One line of the lock: Maven coordinates and the SHA-256 of the file. ``classifier`` is often empty."""

    group: str
    artifact: str
    version: str
    classifier: str
    sha256: str

    @property
    def coordinates(self) -> str:
        """As the lock has them."""
        return ":".join(filter(None, (self.group, self.artifact, self.version, self.classifier)))

    @property
    def name(self) -> str:
        """File name in the jars folder."""
        return "-".join(filter(None, (self.artifact, self.version, self.classifier))) + ".jar"


def read_lock(path: Path) -> list[Jar]:
    """Read `group:artifact:version[:classifier] sha256` lines; empty ones and those that start with # are comments."""
    jars = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            coordinates, sha256 = line.split()
            group, artifact, version, *classifier = coordinates.split(":")
            (only,) = classifier or [""]
        except ValueError:
            expected = "group:artifact:version[:classifier] sha256"
            raise JarError(f"{path}:{number}: expected {expected!r}, found {line!r}") from None
        jars.append(Jar(group, artifact, version, only, sha256))
    return jars


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def ivy_file(jars: list[Jar]) -> str:
    """The jars as dependencies in Ivy's own form, none with dependencies of its own."""
    ElementTree.register_namespace("m", MAVEN)
    module = ElementTree.Element("ivy-module", version="2.0")
    ElementTree.SubElement(module, "info", organisation="firn", module="jars")
    dependencies = ElementTree.SubElement(module, "dependencies")
    files: dict[tuple[str, str, str], list[Jar]] = {}
    for jar in jars:
        files.setdefault((jar.group, jar.artifact, jar.version), []).append(jar)
    for (group, artifact, version), own in files.items():
        dependency = ElementTree.SubElement(
            dependencies, "dependency", org=group, name=artifact, rev=version, transitive="false"
        )
        # Named one by one only where there is more than the module's main jar, whose packaging may be another's.
        for jar in own if any(jar.classifier for jar in own) else ():
            named = ElementTree.SubElement(dependency, "artifact", name=artifact, type="jar", ext="jar")
            if jar.classifier:
                named.set(f"{{{MAVEN}}}classifier", jar.classifier)
    # Two versions of a module are two jars of the lock, and no conflict to be settled.
    ElementTree.SubElement(dependencies, "conflict", manager="all")
    return ElementTree.tostring(module, encoding="unicode")


def retrieve(jars: list[Jar], ivy: Path, scratch: Path) -> Path:
    """Let Ivy download the jars (never sources or documentation), all with one start; the folder that holds them."""
    wanted = scratch / "ivy.xml"
    wanted.write_text(ivy_file(jars), encoding="utf-8")
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    # Maven's packaging "bundle" (OSGi) is a jar as well; Ivy calls it by that name.
    command = [java, "-jar", str(ivy), "-cache", str(scratch / "ivy"), "-types", "jar", "bundle", "-ivy", str(wanted)]
    settings = os.environ.get("FIRN_IVY_SETTINGS")
    if settings:
        command += ["-settings", settings]
    command += ["-retrieve", str(scratch / "retrieved" / "[artifact]-[revision](-[classifier]).[ext]")]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    missing = [jar for jar in jars if not (scratch / "retrieved" / jar.name).exists()]
    if done.returncode != 0 or missing:
        names = ", ".join(
            f"{jar.group}:{jar.artifact}:{jar.version}:{jar.classifier}".rstrip(":") for jar in missing or jars
        )
        tail = "\n".join(done.stdout.splitlines()[-15:])
        raise JarError(f"Ivy could not fetch {names}. Its last lines:\n{tail}")
    return scratch / "retrieved"


def provide(jars: list[Jar], folder: Path, ivy: Path) -> None:
    """Make sure that `folder` holds exactly the locked jars; says what was done."""
    wrong = [jar for jar in jars if not is_right(folder / jar.name, jar)]
    for jar in jars:
        if jar not in wrong:
            print(f"  {jar.name}: there already")
    if not wrong:
        return
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as scratch:
        retrieved = retrieve(wrong, ivy, Path(scratch))
        for jar in wrong:
            digest = sha256_of(retrieved / jar.name)
            if digest != jar.sha256:
                raise JarError(f"{jar.name}: checksum differs from the lock: expected {jar.sha256}, found {digest}")
            # Same file system: a jar is there whole or not at all.
            target = (retrieved / jar.name).replace(folder / jar.name)
            print(f"  {jar.name}: fetched, {target.stat().st_size / 1e6:.1f} MB", flush=True)


def is_right(path: Path, jar: Jar) -> bool:
    """True when the locked jar is there; one that was cut short or changed by hand is removed."""
    if not path.exists():
        return False
    if sha256_of(path) == jar.sha256:
        return True
    path.unlink()
    return False


def main() -> int:
    """Entry point: 0 when every locked jar, and nothing else, is in the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lock", type=Path, help="file of 'group:artifact:version[:classifier] sha256' lines")
    parser.add_argument("folder", type=Path, help="where the jars go")
    parser.add_argument("--ivy", type=Path, required=True, help="Ivy's own jar (pyspark/jars/ivy-*.jar)")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(".fetch-*"):  # of an interrupted run
        shutil.rmtree(leftover)
    try:
        jars = read_lock(arguments.lock)
        provide(jars, folder, arguments.ivy)
    except JarError as error:
        print(f"firn: {error}", file=sys.stderr)
        return 1
    # Spark loads the whole folder: an older version left behind by an earlier lock would be loaded as well.
    for path in folder.glob("*.jar"):
        if path.name not in {jar.name for jar in jars}:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
