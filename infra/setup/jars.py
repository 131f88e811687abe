"""Fetch the jars named in infra/spark/jars.lock, once, and check each against its SHA-256.

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


class JarError(Exception):
    """A jar could not be had, or is not the one that was locked."""


@dataclass(frozen=True)
class Jar:
    """One line of the lock: Maven coordinates and the SHA-256 of the file."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def name(self) -> str:
        """File name in the jars folder."""
        return f"{self.artifact}-{self.version}.jar"


def read_lock(path: Path) -> list[Jar]:
    """Read `group:artifact:version sha256` lines; empty lines and those that start with # are comments."""
    jars = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            coordinates, sha256 = line.split()
            group, artifact, version = coordinates.split(":")
        except ValueError:
            raise JarError(f"{path}:{number}: expected 'group:artifact:version sha256', found {line!r}") from None
        jars.append(Jar(group, artifact, version, sha256))
    return jars


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def retrieve(jar: Jar, ivy: Path, cache: Path) -> Path:
    """Let Ivy download one jar (never its dependencies, sources or documentation) into `cache`."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    command = [java, "-jar", str(ivy), "-cache", str(cache / "ivy"), "-notransitive", "-types", "jar"]
    settings = os.environ.get("FIRN_IVY_SETTINGS")
    if settings:
        command += ["-settings", settings]
    command += ["-dependency", jar.group, jar.artifact, jar.version]
    command += ["-retrieve", str(cache / "retrieved" / "[artifact]-[revision].[ext]")]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    retrieved = cache / "retrieved" / jar.name
    if done.returncode != 0 or not retrieved.exists():
        tail = "\n".join(done.stdout.splitlines()[-15:])
        raise JarError(f"Ivy could not fetch {jar.group}:{jar.artifact}:{jar.version}. Its last lines:\n{tail}")
    return retrieved


def provide(jar: Jar, folder: Path, ivy: Path) -> str:
    """Make sure that `folder` holds exactly the locked jar; returns what was done."""
    target = folder / jar.name
    if target.exists():
        if sha256_of(target) == jar.sha256:
            return "there already"
        target.unlink()  # cut short, or changed by hand: fetch it again
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as scratch:
        retrieved = retrieve(jar, ivy, Path(scratch))
        found = sha256_of(retrieved)
        if found != jar.sha256:
            raise JarError(f"{jar.name}: checksum differs from the lock: expected {jar.sha256}, found {found}")
        retrieved.replace(target)  # same file system: a jar is there whole or not at all
    return f"fetched, {target.stat().st_size / 1e6:.1f} MB"


def main() -> int:
    """Entry point: 0 when every locked jar, and nothing else, is in the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lock", type=Path, help="file of 'group:artifact:version sha256' lines")
    parser.add_argument("folder", type=Path, help="where the jars go")
    parser.add_argument("--ivy", type=Path, required=True, help="Ivy's own jar (pyspark/jars/ivy-*.jar)")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(".fetch-*"):  # of an interrupted run
        shutil.rmtree(leftover)
    try:
        jars = read_lock(arguments.lock)
        for jar in jars:
            print(f"  {jar.name} … ", end="", flush=True)
            print(provide(jar, folder, arguments.ivy), flush=True)
    except JarError as error:
        print(f"\nfirn: {error}", file=sys.stderr)
        return 1
    # Spark loads the whole folder: an older version left behind by an earlier lock would be loaded as well.
    for path in folder.glob("*.jar"):
        if path.name not in {jar.name for jar in jars}:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
