"""Tables of many small manifests, and what they list."""

from collections import Counter
from typing import Any, Final

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from firnlake.door import OpenCatalog
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import Kind
from tests.support.lakes import NOW, TABLE, append, row

MIN_COUNT: Final = 10
MANY: Final = 18
FEW: Final = {"commit.manifest.min-count-to-merge": str(MIN_COUNT), "commit.manifest-merge.enabled": "false"}
"""Appenders leave the manifests as they are."""
Facts = tuple[Any, ...]


def listed(table: Table) -> list[ManifestFile]:
    snapshot = table.current_snapshot()
    return snapshot.manifests(table.io) if snapshot else []


def live(table: Table) -> Counter[Facts]:
    """Facts of every live file in the manifests, by PyIceberg."""
    entries = (entry for one in listed(table) for entry in one.fetch_manifest_entry(table.io))
    return Counter(
        (
            *(entry.data_file.file_path, entry.data_file.content, entry.data_file.spec_id),
            *(entry.snapshot_id, entry.sequence_number, entry.file_sequence_number),
            *(repr(dict(value) if hasattr(value, "items") else value) for value in _facts(entry.data_file)),
        )
        for entry in entries
    )


def _facts(file: Any) -> list[Any]:
    """All fields of a data file that PyIceberg knows."""
    return [file[position] for position in range(len(file))]


def seen(table: Table) -> list[tuple[int, int]]:
    found = table.scan(selected_fields=("partition", "offset")).to_arrow().to_pylist()
    return sorted((one["partition"], one["offset"]) for one in found)


def many_small(lake: Lake, identifier: str = TABLE, count: int = MANY) -> None:
    """So many appends to three topic partitions in turn, and a limit that makes them many."""
    lake.set_properties(identifier, FEW)
    for number in range(count):
        append(lake, [row(number, partition=number % 3)], identifier)


def rewritten(lake: Lake, identifier: str = TABLE, *, dry_run: bool = False) -> list[str]:
    """Maintain the table; the manifests that go, or the reason why they stay."""
    found = OpenCatalog(lake, lambda: NOW).table(identifier).maintain(dry_run=dry_run)
    return [f"{one.files} {one.name}" if one.goes else one.reason for one in found if one.kind is Kind.MANIFESTS]
