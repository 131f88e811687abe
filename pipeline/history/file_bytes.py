"""File bytes that a commit added and removed, by Iceberg's own snapshot summary: any writer's, no manifest read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.table.snapshots import Snapshot

from pipeline.history.properties import properties_of

_ADDED: Final = ("added-files-size", ("added-data-files", "added-delete-files"))
_REMOVED: Final = ("removed-files-size", ("deleted-data-files", "removed-delete-files"))
"""The property with the bytes, and those that count the files."""
_SOURCE: Final = "source-snapshot-id"
"""Names the snapshot whose files a cherry-pick published on main."""


@dataclass(frozen=True, slots=True)
class FileBytes:
    """Bytes of data and delete files; None where the summary does not say."""

    added: int | None
    removed: int | None


def file_bytes(snapshot: Snapshot) -> FileBytes:
    """Bytes that ``snapshot`` added to its parent, and those that it took out of it."""
    if snapshot.summary is None:
        return FileBytes(None, None)
    properties = properties_of(snapshot)
    return FileBytes(_bytes(properties, *_ADDED), _bytes(properties, *_REMOVED))


def cherry_picked(snapshot: Snapshot) -> int | None:
    """Id of the snapshot whose files ``snapshot`` published again; None where it is no cherry-pick."""
    return _number(properties_of(snapshot).get(_SOURCE))


def _bytes(properties: Mapping[str, str], size: str, counts: tuple[str, ...]) -> int | None:
    # Writers leave out what is zero. Iceberg's also leave out sizes alone, where they commit whole manifests.
    if size not in properties:
        return None if any(properties.get(name, "0") != "0" for name in counts) else 0
    return _number(properties[size])


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None
