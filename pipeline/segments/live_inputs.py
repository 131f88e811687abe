"""Finds given data files in a table's current snapshot, and changes to them since they were planned."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from pipeline.lake.manifests import Manifests
from pipeline.segments.read import read_entries


@dataclass(frozen=True)
class LiveInputs:
    """The live ones of some paths as ``files``, in the order requested, and the others as ``gone``.

    A file that the table lists more than once is in ``files`` as often, as readers see it.
    """

    files: list[DataFile]
    gone: list[str]
    with_row_deletes: list[str]

    @classmethod
    def find(cls, table: Table, paths: Sequence[str], manifests: Manifests | None = None) -> "LiveInputs":
        """Look up ``paths`` in the current snapshot of ``table``; paths are compared literally."""
        wanted = frozenset(paths)
        found: dict[str, list[DataFile]] = defaultdict(list)
        deleted_from = []
        for entry, row_deletes in read_entries(table, manifests):
            path = entry.data_file.file_path
            if path in wanted:
                found[path].append(entry.data_file)
                if row_deletes:
                    deleted_from.append(path)
        return cls(
            files=[file for path in paths for file in found.get(path, ())],
            gone=[path for path in paths if path not in found],
            with_row_deletes=deleted_from,
        )
