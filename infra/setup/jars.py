"""Fetch the jars named in a lock file, once, and check each against its SHA-256.

    python jars.py LOCK FOLDER

They come from Maven Central, or from the mirror that the variable FIRN_MAVEN names. What lies in the folder and is no
locked jar goes, because Spark loads the whole folder.
"""

import hashlib
import os
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

LINE = re.compile(r"([^:\s]+):([^:\s]+):([^:\s]+)(?::([^:\s]+))?\s+(\S+)")
AT_A_TIME = 4
SECONDS = 60
"""For which a repository may say nothing."""


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

    @property
    def path(self) -> str:
        """Where Maven repositories have it."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.name}"


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


def fetch(folder: Path, jar: Jar) -> None:
    """Fetch a jar into ``folder``: whole and as it was locked, or not at all."""
    address = f"{os.environ.get('FIRN_MAVEN', 'https://repo1.maven.org/maven2')}/{jar.path}"
    part = folder / f".{jar.name}.part"
    try:
        with urlopen(address, timeout=SECONDS) as answer, part.open("wb") as file:  # noqa: S310  # the user's choice
            shutil.copyfileobj(answer, file)
        digest = sha256_of(part)
        if digest != jar.sha256:
            raise JarError(f"{address}: checksum differs from the lock: expected {jar.sha256}, found {digest}")
        size = part.replace(folder / jar.name).stat().st_size
        print(f"  {jar.name}: fetched, {size / 1e6:.1f} MB", flush=True)
    except (OSError, HTTPException) as error:
        raise JarError(f"{address}: {error}; allowed: another repository, by FIRN_MAVEN") from error
    finally:
        part.unlink(missing_ok=True)


def provide(jars: list[Jar], folder: Path) -> None:
    """Make sure that ``folder`` holds exactly the locked jars; says what was fetched."""
    locked = {jar.name: jar.sha256 for jar in jars}
    for path in folder.glob("*.jar"):
        if sha256_of(path) != locked.get(path.name):
            path.unlink()
    with ThreadPoolExecutor(AT_A_TIME) as workers:
        list(workers.map(partial(fetch, folder), [jar for jar in jars if not (folder / jar.name).exists()]))


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
