"""Identity of this process's Firn, so that workers with another one are refused."""

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

_PACKAGES = ("pipeline", "expectations")


@cache
def identity() -> str:
    """Version and a digest of the code, such as ``0.1.0+3f2a9c01d4e5``; read once per process."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        spec = find_spec(package)
        for folder in sorted(spec.submodule_search_locations or ()) if spec else ():
            for path in sorted(Path(folder).rglob("*.py")):
                digest.update(path.relative_to(folder).as_posix().encode())
                digest.update(path.read_bytes())
    try:
        released = version("firn")
    except PackageNotFoundError:  # a checkout on the path
        released = "unreleased"
    return f"{released}+{digest.hexdigest()[:12]}"
