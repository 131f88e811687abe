"""Fetch the jars named in a lock file, once, and check each against its SHA-256.

    python jars.py LOCK FOLDER

Only the standard library and Java are needed: the resolver is the Ivy that Spark ships for `spark.jars.packages`, so a
mirror is configured in the way a Spark user knows: an Ivy settings file, named by the variable FIRN_IVY_SETTINGS. What
lies in the folder and is no locked jar goes, because Spark loads the whole folder.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

LINE = re.compile(r"([^:\s]+):([^:\s]+):([^:\s]+)(?::([^:\s]+))?\s+(\S+)")


class JarError(Exception):
    """A jar could not be had, or is not the one that was locked."""


class Jar(NamedTuple):
    """One line of the lock: Maven coordinates and the SHA-256 of the file. ``classifier`` is often empty."""

    group: str
    artifact: str
    version: str
    classifier: str
    sha256: str

    @property
    def name(self) -> str:
        """File name in the jars folder."""
        return "-".join(filter(None, (self.artifact, self.version, self.classifier))) + ".jar"


def read_lock(path: Path) -> list[Jar]:
    """Read `group:artifact:version[:classifier] sha256` lines; empty ones and those that start with # are comments."""
    jars = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if line.strip() and not line.startswith("#"):
            match = LINE.fullmatch(line.strip())
            if match is None:
                expected = "group:artifact:version[:classifier] sha256"
                raise JarError(f"{path}:{number}: expected {expected!r}, found {line!r}")
            jars.append(Jar(*(part or "" for part in match.groups())))
    return jars


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def ivy_file(jars: list[Jar]) -> str:
    """The jars as dependencies in Ivy's own form, none with dependencies of its own."""
    dependencies = ""
    for (group, artifact, version), own in groupby(sorted(jars), lambda jar: jar[:3]):
        dependencies += f'<dependency org="{group}" name="{artifact}" rev="{version}" transitive="false">'
        classifiers = [jar.classifier for jar in own]
        # Named one by one only where there is more than the module's main jar, whose packaging may be another's.
        for classifier in classifiers if any(classifiers) else ():
            named = f' m:classifier="{classifier}"' if classifier else ""
            dependencies += f'<artifact name="{artifact}" type="jar" ext="jar"{named}/>'
        dependencies += "</dependency>"
    # Two versions of a module are two jars of the lock, and no conflict to be settled.
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven"><info organisation="firn" module="jars"/>'
        f'<dependencies>{dependencies}<conflict manager="all"/></dependencies></ivy-module>'
    )


def retrieve(jars: list[Jar], scratch: Path) -> Path:
    """Let Ivy download the jars (never sources or documentation), all with one start; the folder that holds them."""
    (ivy,) = Path(sysconfig.get_path("purelib")).glob("pyspark/jars/ivy-*.jar")
    wanted, retrieved = scratch / "ivy.xml", scratch / "retrieved"
    wanted.write_text(ivy_file(jars), encoding="utf-8")
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    # Maven's packaging "bundle" (OSGi) is a jar as well; Ivy calls it by that name.
    command = [java, "-jar", str(ivy), "-cache", str(scratch / "ivy"), "-types", "jar", "bundle", "-ivy", str(wanted)]
    settings = os.environ.get("FIRN_IVY_SETTINGS")
    if settings:
        command += ["-settings", settings]
    command += ["-retrieve", str(retrieved / "[artifact]-[revision](-[classifier]).[ext]")]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    missing = [jar.name for jar in jars if not (retrieved / jar.name).exists()]
    if done.returncode != 0 or missing:
        tail = "\n".join(done.stdout.splitlines()[-15:])
        raise JarError(f"Ivy could not fetch {', '.join(missing) or 'the jars'}. Its last lines:\n{tail}")
    return retrieved


def provide(jars: list[Jar], folder: Path) -> None:
    """Make sure that `folder` holds exactly the locked jars; says what was fetched."""
    locked = {jar.name: jar.sha256 for jar in jars}
    for path in folder.glob("*.jar"):
        if sha256_of(path) != locked.get(path.name):
            path.unlink()
    wanted = [jar for jar in jars if not (folder / jar.name).exists()]
    if not wanted:
        return
    for leftover in folder.glob(".fetch-*"):  # of an interrupted run
        shutil.rmtree(leftover)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as scratch:
        retrieved = retrieve(wanted, Path(scratch))
        for jar in wanted:
            digest = sha256_of(retrieved / jar.name)
            if digest != jar.sha256:
                raise JarError(f"{jar.name}: checksum differs from the lock: expected {jar.sha256}, found {digest}")
            # Same file system: a jar is there whole or not at all.
            target = (retrieved / jar.name).replace(folder / jar.name)
            print(f"  {jar.name}: fetched, {target.stat().st_size / 1e6:.1f} MB", flush=True)


def main() -> None:
    """Entry point."""
    lock, folder = map(Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    try:
        provide(read_lock(lock), folder)
    except JarError as error:
        raise SystemExit(f"firn: {error}") from error


if __name__ == "__main__":
    main()
