"""Pack Firn and the packages that its tasks import into one archive, from which Spark gives them to its executors."""

import json
import re
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from firnlake.engine.engine import folders, identity
from firnlake.errors import RefusedError

_FOLDER = "firn"
"""Folder in the working directory of an executor, into which Spark unpacks the archive."""
_SEARCHED = f"{_FOLDER}:../{_FOLDER}"
"""Where Python workers look for it. A worker of Spark Connect has a folder of its session in that directory."""
_ABOUT = "firn-spark.json"
"""File in the archive: the version of Firn, and the Python and platform that its compiled modules fit."""
_FIRN = "firnlake"
ROOTS = ("duckdb", "numpy", "pyarrow", "pyiceberg")
"""What tasks import, apart from what these require. Only the driver needs Firn's other dependencies."""
_UNUSED = ("click", "rich")
"""Requirements of PyIceberg's own command, which no task calls."""
_REQUIRED = re.compile(r"([\w.-]+)(?!.*\bextra ==)")
"""The name in a line of Requires-Dist, unless an extra asks for it."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Time of every file in the archive, so that the same installation makes the same archive."""


@dataclass(frozen=True)
class Archive:
    """An archive for executors; ``packages`` are names with versions."""

    path: Path
    bytes: int
    packages: dict[str, str]

    @property
    def settings(self) -> dict[str, str]:
        """The Spark settings that make executors use the archive, once it is where they can read it."""
        return {
            "spark.archives": f"{self.path}#{_FOLDER}",
            "spark.executorEnv.PYTHONPATH": _SEARCHED,
            "spark.sql.execution.pyspark.python": f"python{_python()}",
        }


def pack(path: Path, more: Sequence[str] = (), *, level: int = 1) -> Archive:
    """Write the archive ``path`` with the packages of this installation; ``more`` names packages to add.

    ``level`` is zlib's: 6 saves a tenth of the bytes and takes three times as long. Raises RefusedError if a package is
    not installed, or if ``path`` can't be written or is no ``.zip``, because Spark recognizes an archive by its name.
    """
    if path.suffix != ".zip":
        raise RefusedError(f"{path} is not the name of an archive; allowed: a path that ends with .zip")
    found = _distributions([*ROOTS, *more])
    versions = {_FIRN: identity()} | {name: found[name].version for name in sorted(found)}
    files = dict(_files_of_firn()) | {name: file for one in found.values() for name, file in _files(one)}
    about = {"python": _python(), "platform": sysconfig.get_platform(), "packages": versions}
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        with zipfile.ZipFile(unfinished, "w") as archive:
            archive.writestr(_member(_ABOUT), json.dumps(about, indent=1))
            for name in sorted(files):
                archive.writestr(_member(name), files[name].read_bytes(), compresslevel=level)
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise RefusedError(f"{path} can't be written: {error.strerror or error}") from error
    return Archive(path, path.stat().st_size, versions)


def _distributions(names: Sequence[str]) -> dict[str, Distribution]:
    """The installed distributions ``names`` and those that they require, by normalized name."""
    found: dict[str, Distribution] = {}
    waiting = list(names)
    for one in waiting:
        name = re.sub(r"[-_.]+", "-", one).lower()
        if name in found or name in _UNUSED:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            if one in names:
                raise RefusedError(f"package {one} is not installed here; allowed: installed packages") from None
            continue  # required on another platform or by another Python
        waiting += [match[1] for line in found[name].requires or () if (match := _REQUIRED.match(line))]
    return found


def _files(package: Distribution) -> Iterator[tuple[str, Path]]:
    """The files of a package below `site-packages`, without commands and compiled code, by name in the archive."""
    if package.files is None:
        raise RefusedError(f"{package.metadata['Name']} was installed without a list of its files (RECORD)")
    for file in package.files:
        if ".." not in file.parts and "__pycache__" not in file.parts:
            yield file.as_posix(), Path(str(file.locate()))


def _files_of_firn() -> Iterator[tuple[str, Path]]:
    """Firn's code, which an editable installation has elsewhere, and the metadata that state its version."""
    for folder in folders():
        for path in folder.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(folder.parent).as_posix(), path
    try:
        own = distribution(_FIRN)
    except PackageNotFoundError:  # a checkout on the path
        return
    yield from ((name, path) for name, path in _files(own) if path.name == "METADATA")


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, _EPOCH)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.external_attr = 0o644 << 16
    return member


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
