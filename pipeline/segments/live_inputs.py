"""Finds given data files in a table's current snapshot, and changes to them since they were planned."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from pipeline.lake.manifests import Manifests
from pipeline.lake.row_deletes import FileDeletes
from pipeline.segments.read import read_entries


@dataclass(frozen=True)
class LiveInputs:
    """The live ones of some paths as ``files``, in the order requested, and the others as ``gone``.

    A file that the table lists more than once is in ``files`` as often, as readers see it.
    """

    files: list[DataFile]
    gone: list[str]
    deletes: Mapping[str, FileDeletes]
    """Row-level deletes that may apply to a file, by its path; only files with any."""

    @classmethod
    def find(cls, table: Table, paths: Sequence[str], manifests: Manifests | None = None) -> "LiveInputs":
        """Look up ``paths`` in the current snapshot of ``table``; paths are compared literally."""
        wanted = frozenset(paths)
        by_path: dict[str, list[DataFile]] = defaultdict(list)
        deletes: dict[str, FileDeletes] = {}
        for entry, reaching in read_entries(table, manifests, wanted):
            path = entry.data_file.file_path
            by_path[path].append(entry.data_file)
            if reaching:
                # Plans leave alone a file that is listed twice and has deletes.
                deletes[path] = FileDeletes(entry.sequence_number or 0, tuple(reaching))
        return cls(
            files=[file for path in paths for file in by_path.get(path, ())],
            gone=[path for path in paths if path not in by_path],
            deletes=deletes,
        )
