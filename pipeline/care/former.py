"""Former metadata files: those that the commits of a round of care push out of the table's metadata log.

Other former metadata files are orphans like any. These were named by the log until now, however old they are, and
without this the next round would find them (Iceberg docs, "Configuration", ``write.metadata.previous-versions-max``).
"""

from collections.abc import Iterator
from typing import Final

from pyiceberg.table import Table

from pipeline.care.delete import delete
from pipeline.care.garbage import Garbage, Kind
from pipeline.care.references import metadata_locations
from pipeline.lake.folders import Stored, Stores

_VERSIONS: Final = "write.metadata.previous-versions-max"
_DEFAULT: Final = 100
_DELETED_BY_COMMITS: Final = "write.metadata.delete-after-commit.enabled"


def dropped(before: Table, after: Table) -> list[str]:
    """Locations that ``before`` names as its metadata files and ``after`` no longer does."""
    named = set(metadata_locations(after))
    return [one for one in metadata_locations(before) if one not in named]


def dropped_by(table: Table, commits: int) -> list[str]:
    """Locations that so many ``commits`` will drop from the log of ``table``, oldest first."""
    text = table.properties.get(_VERSIONS, str(_DEFAULT))
    most = max(1, int(text)) if text.isdecimal() else _DEFAULT
    locations = metadata_locations(table)
    return locations[: max(0, len(locations) - 1 + commits - most)] if commits else []


def former(table: Table, locations: list[str], limit_ms: int, now_ms: int, *, remove: bool) -> Iterator[Garbage]:
    """The metadata files at ``locations`` that are older than ``limit_ms`` milliseconds; with ``remove`` they are gone.

    Yields nothing where commits delete them themselves.
    """
    if table.properties.get(_DELETED_BY_COMMITS, "false").lower() == "true":
        return
    stores = Stores(table)
    located = [(files, files.get_file_info(path)) for files, path in map(stores.of, locations)]
    stored = [(files, Stored.of(info)) for files, info in located if info.is_file]
    old = [(files, file) for files, file in stored if file.is_older(now_ms - limit_ms)]
    deleted = delete(old, remove=remove, title="deleting former metadata files", total=len(old))
    reason = f"the metadata log no longer names them; older than firn.care.orphans.age.ms = {limit_ms}"
    yield from deleted.findings(Kind.METADATA, table.location(), reason, now_ms)
