"""The one rule for when two locations mean the same file.

Writers spell a location differently: Java writes ``file:/a``, PyIceberg ``file:///a``, a file system ``/a``; ``s3`` and
``s3a`` are one store. So locations are compared by the path on their store. Paths and names are kept as 64-bit hashes,
8 bytes each: a table may have millions of files. Two that collide keep a file that could go, never the reverse.
"""

import re
from typing import Final

_CHECKSUM: Final = ".crc"
_WITH_HOST: Final = frozenset({"hdfs", "viewfs", "file"})
"""Schemes whose authority is a host: the same files have the same paths under another one."""
_SLASHES: Final = re.compile("/{2,}")


def path_of(location: str) -> str:
    """The path of ``location`` on its store, without a leading slash: ``bucket/a`` of ``s3a://bucket/a``.

    Takes locations of a table's metadata and paths of a file system. The checksum that Hadoop's local file system keeps
    beside a file (``.<name>.crc``) has the path of its file: it stays and goes with it.
    """
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        rest = location
    elif scheme in _WITH_HOST and rest.startswith("//"):
        rest = rest[2:].partition("/")[2]
    path = rest.lstrip("/")
    if "//" in path:
        path = _SLASHES.sub("/", path)
    if not path.endswith(_CHECKSUM):
        return path
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{_without_crc(name)}"


def name_of(location: str) -> str:
    """The last part of ``location``; that of its file for a checksum."""
    return _without_crc(location.rpartition("/")[2])


def _without_crc(name: str) -> str:
    return name[1:-4] if name.endswith(_CHECKSUM) and name.startswith(".") else name
