"""A real SQL catalog whose loads tell less of a table than its metadata file: a REST catalog's ``snapshots=refs``.

PyIceberg loads the class through its own ``py-catalog-impl`` setting.
"""

import uuid
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata

from firnlake.iceberg.catalog import Lake


class HeadsOnlyCatalog(SqlCatalog):
    """Loads hold heads only where ``snapshot-loading-mode`` = ``refs``, and differ as ``differs`` says, always."""

    committing = False

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        # What a server sets for all of its clients wins over their own configuration (REST specification, /v1/config).
        if mode := properties.get("override"):
            self.properties["snapshot-loading-mode"] = mode

    def load_table(self, identifier: Any) -> Table:
        table = super().load_table(identifier)
        differs = "snapshots" if self.properties.get("snapshot-loading-mode") == "refs" else ""
        differs = self.properties.get("differs", differs)
        if self.committing or not differs:
            return table
        if differs == "no location":
            return Table(table.name(), table.metadata, "", table.io, self)
        return Table(table.name(), different(table.metadata, differs), table.metadata_location, table.io, self)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        self.committing = True
        try:
            return super().commit_table(table, requirements, updates)
        finally:
            self.committing = False


def different(metadata: TableMetadata, differs: str) -> TableMetadata:
    """``metadata`` that differs in one respect."""
    heads = {ref.snapshot_id for ref in metadata.refs.values()}
    match differs:
        case "snapshots":
            return metadata.model_copy(
                update={"snapshots": [one for one in metadata.snapshots if one.snapshot_id in heads]}
            )
        case "references":
            main = {name: ref for name, ref in metadata.refs.items() if name == "main"}
            return metadata.model_copy(update={"refs": main})
        case "manifest lists":
            oldest, *others = metadata.snapshots
            moved = oldest.model_copy(update={"manifest_list": others[-1].manifest_list})
            return metadata.model_copy(update={"snapshots": [moved, *others]})
        case "table UUID":
            return metadata.model_copy(update={"table_uuid": uuid.uuid4()})
    raise ValueError(differs)


def heads_only(lake: Lake, **properties: str) -> Lake:
    """``lake`` through such a catalog, which is configured with ``properties``."""
    own = {key: value for key, value in lake.properties.items() if key != "type"}
    impl = f"{HeadsOnlyCatalog.__module__}.{HeadsOnlyCatalog.__name__}"
    return Lake(lake.name, own | {"py-catalog-impl": impl} | properties, lake.home)
