"""Folders of stages on whatever store the warehouse is on."""

from contextlib import suppress

from pyarrow.fs import FileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from pipeline.errors import RefusedError

DATA_PATH = "write.data.path"
"""Iceberg's property for the folder of a table's data files."""


def stages_folder(target: Table) -> str:
    """Where the metadata of all stages of ``target`` lies, one folder per job id."""
    return f"{target.location().rstrip('/')}/stages"


def store(table: Table, location: str) -> tuple[FileSystem, str]:
    """The file system that holds ``location``, under the table's own credentials, and the path there.

    Locations are literal, to PyIceberg and to Spark: a percent sign in one is part of a name and no escape.
    """
    scheme, netloc, path = PyArrowFileIO.parse_location(location, table.io.properties)
    return PyArrowFileIO(table.io.properties).fs_by_scheme(scheme, netloc), path


def delete_folder(table: Table, location: str) -> None:
    """Delete the folder ``location`` of a stage of ``table``, in which nothing but metadata is left."""
    files, folder = store(table, location)
    if not folder.strip("/"):
        raise RefusedError(
            f"stage location {location!r} is not a folder of its own; allowed: a folder below the target's"
        )
    # Another process may be clearing the same folder, or write to it: what is left then is swept as forgotten.
    with suppress(OSError):
        files.delete_dir(folder)
