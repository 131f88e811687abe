"""The demo's input: a git repository's history as a changelog, and the tree that it must end up with.

Every path is a key, every change of it a record, every deletion a tombstone. The order is that of the first-parent
history, oldest commit first; the time is when the author says the change was written, so it runs backwards where a
change lay around before it was merged. README.md beside this module says how git makes both files.
"""

import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CHANGELOG = Path(__file__).with_name("changelog.xz")
TREE = Path(__file__).with_name("tree.xz")


class Entry(NamedTuple):
    """An entry of a tree: file mode (octal, as git prints it) and blob id (hex)."""

    mode: str
    blob: str

    def value(self) -> bytes:
        """The record value: compact JSON, the same bytes for the same entry."""
        return json.dumps(self._asdict(), separators=(",", ":")).encode()

    @classmethod
    def parse(cls, value: bytes) -> "Entry":
        """The entry behind a record value."""
        return cls(**json.loads(value))


class Change(NamedTuple):
    """One path of one commit: author time in epoch seconds, the path, and its entry (None: deleted)."""

    time: int
    path: str
    entry: Entry | None


def read_changelog() -> Iterator[Change]:
    """The changes, from lines `time mode blob path`; a deletion has `-` for mode and blob."""
    for line in _lines(CHANGELOG):
        time, mode, blob, name = line.split(" ", 3)
        yield Change(int(time), name, None if blob == "-" else Entry(mode, blob))


def read_tree() -> dict[str, Entry]:
    """The tree's entries by path, from lines `mode blob path`."""
    rows = (line.split(" ", 2) for line in _lines(TREE))
    return {name: Entry(mode, blob) for mode, blob, name in rows}


def _lines(path: Path) -> list[str]:
    return lzma.decompress(path.read_bytes()).decode("utf-8", "surrogateescape").split("\n")[:-1]
