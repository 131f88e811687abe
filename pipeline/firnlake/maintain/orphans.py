"""Orphans: files below a table's location that nothing reaches, and that may be anybody's.

They may belong to a writer that died, to another table, or to this table when it was in another catalog. Therefore they
stay, unless the table's operator allows their deletion (`orphans` in ``firn.maintenance``), and no other table can own
them. They must be older than three days, as nothing refers yet to the files of a writer that is about to commit.
Firn's own folders are not looked at: `job.garbage` has a rule for them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Final

from pyarrow.fs import FileSystem
from pyiceberg.table import Table

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.deleter import Deletable, Finding, Garbage, Kind
from firnlake.iceberg.files import DATA_PATH, METADATA_PATH, Stored, files_in, name_of, path_of, store
from firnlake.job.garbage import AGE_MS, OF_AGE, store_ms, walk
from firnlake.table.reached import METADATA_FILE, Reached, text_of, uuid_in

_PATHS: Final = (DATA_PATH, METADATA_PATH, "write.object-storage.path", "write.folder-storage.path")
"""Iceberg's properties for the folders of a table's files; the last two are older names of the first property."""
_MARKS: Final = ("_", ".")
"""Beginnings of hidden names."""


def orphans(lake: Lake, reached: Reached, *, remove: bool) -> tuple[list[Garbage], list[Finding]]:
    """What may go from the location of the table, and findings about what stays there, of all files that are not
    ``reached``; without ``remove``, nothing is written."""
    table = reached.table
    location = table.location().rstrip("/")
    access, folder = store(table, location)
    fields = {field.name for spec in table.specs().values() for field in spec.fields}
    partitions = tuple(f"{name}=" for name in fields if name.startswith(_MARKS))
    unknown: list[Stored] = []
    for part in walk(access, folder):
        shown = [file for file in part if not _is_hidden(file.path[len(folder) :].lstrip("/"), partitions)]
        unknown += reached.unreached(shown)
    now_ms = store_ms(table, location, remove=remove)
    limit_ms = 0 if now_ms is None else now_ms - AGE_MS
    old = [file for file in unknown if file.is_older(limit_ms)]
    young = [file for file in unknown if not file.is_older(limit_ms)]
    staying = []
    if young:
        reason = f"unreferenced, but not {OF_AGE}"
        staying.append(Finding.of_files(Kind.ORPHANS, location, young, now_ms, goes=False, reason=reason))
    if old:
        try:
            check_alone(lake, table, [file.path for file in unknown])
        except RefusedError as error:
            staying.append(Finding.of_error(Kind.ORPHANS, location, error, len(old)))
            old = []
    by_folder: dict[str, list[Deletable]] = defaultdict(list)
    for file in old:
        within, slash, _ = file.path[len(folder) :].lstrip("/").partition("/")
        by_folder[f"{location}/{within}" if slash else location].append((access, file))
    reason = f"unreferenced; {OF_AGE}"
    return [Garbage(Kind.ORPHANS, name, reason, own, now_ms) for name, own in sorted(by_folder.items())], staying


def _is_hidden(path: str, partitions: tuple[str, ...]) -> bool:
    """True when the file at ``path``, relative to the table's location, is hidden, as for Iceberg's
    ``remove_orphan_files``: a name in it begins with an underscore or a dot, and it is no folder of ``partitions``."""
    *folders, name = path.split("/")
    marked = (one for one in folders if one.startswith(_MARKS) and not one.startswith(partitions))
    return name_of(name).startswith(_MARKS) or any(marked)


def check_alone(lake: Lake, table: Table, unknown: Iterable[str]) -> None:
    """Raise RefusedError when another table's files may be at, above or below the location of ``table``.

    ``unknown`` are the paths on the store of files below it that the table does not reach. Loads every table of the
    catalog; all must be known.
    """
    _check_catalog(lake, table)
    access, folder = store(table, table.location().rstrip("/"))
    within = (path for path in unknown if METADATA_FILE.fullmatch(path.rpartition("/")[2]))
    for where, paths in (("within", within), ("above", _above(access, folder))):
        for path in paths:
            uuid = uuid_in(text_of(access, path) or "")
            if uuid not in (None, str(table.metadata.table_uuid).lower()):
                raise _refused(table, f"{path}, {where} that location, is of another table (UUID {uuid})")


def _check_catalog(lake: Lake, table: Table) -> None:
    mine = {table.location(), table.properties.get(METADATA_PATH, table.location())}
    identifier, problem = ".".join(table.name()), "the catalog's tables can't be listed"
    others: dict[str, set[str]] = {}
    try:
        for other in lake.all_tables():
            problem = f"table {other} can't be loaded"
            others[other] = _locations(lake.table(other)) if other != identifier else set()
    except Exception as error:  # the metadata of other tables may be damaged in any way
        reason = " ".join(str(error).split())
        raise RefusedError(
            f"table {identifier}: orphans stay, because another table's files may be among them: {problem}: {reason}; "
            f"allowed: a catalog in which all tables can be loaded"
        ) from error
    for other, locations in others.items():
        if any(_overlap(location, one) for location in locations for one in mine):
            raise _refused(table, f"table {other} is at {min(locations)}")


def _above(files: FileSystem, folder: str) -> Iterator[str]:
    """Yield the metadata files in the subfolder ``metadata`` of each folder above ``folder``, if it can be listed."""
    for parent in PurePosixPath(folder).parents:
        if str(parent) not in (".", "/"):
            with suppress(OSError):
                for file in files_in(files, f"{parent}/metadata", recursive=False):
                    if METADATA_FILE.fullmatch(file.path.rpartition("/")[2]):
                        yield file.path


def _locations(table: Table) -> set[str]:
    """The locations of the folders that hold files of ``table``."""
    told = {table.properties[name] for name in _PATHS if name in table.properties}
    return {table.location(), table.metadata_location.rpartition("/")[0], *told}


def _overlap(one: str, other: str) -> bool:
    paths = [f"{path_of(location).rstrip('/')}/" for location in (one, other)]
    return paths[0].startswith(paths[1]) or paths[1].startswith(paths[0])


def _refused(table: Table, problem: str) -> RefusedError:
    return RefusedError(
        f"table {'.'.join(table.name())}: orphans stay, because other tables may share its location "
        f"{table.location()}: {problem}; allowed: a location with no other table's files at, below or above it (you "
        "can remove the files of a dropped table by hand)"
    )
